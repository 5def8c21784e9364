"""From the name of a mode to the source of every layer. Pure."""

from dataclasses import dataclass

from engine_adapters.restore import (
    CakePlan,
    ComputeCost,
    CostProfile,
    History,
    LayerCosts,
    LayerSchedule,
    LoadCost,
    Mode,
    Source,
    plan_cake,
    predict_s,
    schedule_for,
    storing_schedule,
    with_faster_reads,
)
from kvstored_contract.layout import RAW

PLANNED_CHUNK_TOKENS = 64
PLANNED_STEP_TOKENS = 512
"""What a choice assumes of chunks and steps; others change it little."""

MEASURED_MODES = frozenset({Mode.HCACHE, Mode.NAIVE_HYBRID, Mode.CAKE, Mode.AUTO})
"""Modes that balance what was measured; the others do not look at costs."""

_EQUAL_COSTS = LayerCosts(io_hidden_s=1.0, io_kv_s=1.0, compute_s=1.0, project_s=1.0)


OLD_PROFILE_DAYS = 90
"""After these the machine may well be another one."""
_DAY_S = 24 * 3600


class ModeError(ValueError):
    """A mode that cannot be used as things are; the message says what it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What the choice depends on: layers, positions, and bytes of one token in one layer."""

    layer_count: int
    position_count: int
    hidden_bytes: int
    kv_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChoice:
    """What is stored of every layer, and how it is used.

    More of the first layers may be recomputed than store nothing, by the costs of the moment
    (``LayerRates``). ``is_cake`` restores from both ends. ``note`` is one line that says what
    was assumed where it was not measured, or not lately.
    """

    schedule: LayerSchedule
    is_cake: bool = False
    note: str = ""


def choose_schedule(
    mode: Mode,
    shape: ModelShape,
    profile: CostProfile | None,
    *,
    now_s: float,
    machine: str = "",
    codec: str = RAW,
) -> ModeChoice:
    """The source of every layer in ``mode``, by the measured costs of ``profile``.

    ``now_s`` is seconds since 1970; an old profile is used, and its age said. So is one of
    another machine than ``machine``, where that is known, and one that tells nothing of
    ``codec``: then only reads count.
    Without a profile AUTO takes the smaller of hidden states and KV for all layers, and
    says so. Raises ModeError for HCACHE, NAIVE_HYBRID and CAKE without a profile.
    """
    if mode not in MEASURED_MODES:
        return ModeChoice(schedule=schedule_for(mode, _EQUAL_COSTS, shape.layer_count))
    if profile is not None:
        notes = (
            _age_note(profile.age_s(now_s)),
            _machine_note(profile, machine),
            _codec_note(profile, codec),
        )
        schedule, is_cake = _measured_choice(mode, shape, profile, codec)
        return ModeChoice(schedule=schedule, is_cake=is_cake, note="; ".join(filter(None, notes)))
    if mode is not Mode.AUTO:
        raise ModeError(
            f"mode {mode} balances measured costs, and none are known for this model: run "
            "`python -m engine_adapters.runner calibrate MODEL` first"
        )
    assumed = Mode.HIDDEN if shape.hidden_bytes < shape.kv_bytes else Mode.KV
    return ModeChoice(
        schedule=schedule_for(assumed, _EQUAL_COSTS, shape.layer_count),
        note=(
            f"mode auto knows no costs of this model and takes {assumed}, the smaller state; "
            "`python -m engine_adapters.runner calibrate MODEL` measures them"
        ),
    )


def _measured_choice(
    mode: Mode, shape: ModelShape, profile: CostProfile, codec: str
) -> tuple[LayerSchedule, bool]:
    """The schedule, and whether it is used from both ends."""
    token_count = min(profile.planned_tokens, shape.position_count)
    cake = _cake_plan(shape, profile, token_count, codec)
    if mode is Mode.CAKE:
        smaller = Source.HIDDEN if shape.hidden_bytes < shape.kv_bytes else Source.KV
        source = smaller if cake.source is Source.COMPUTE else cake.source
        return LayerSchedule.of((source, shape.layer_count)), True
    costs = profile.costs(token_count, codec=codec)
    schedule = schedule_for(mode, costs, shape.layer_count)
    if mode is Mode.AUTO and cake.load_order and cake.duration_s < predict_s(schedule, costs):
        return LayerSchedule.of((cake.source, shape.layer_count)), True
    of_faster = schedule_for(mode, with_faster_reads(costs), shape.layer_count)
    return storing_schedule(schedule, of_faster), False


def _cake_plan(shape: ModelShape, profile: CostProfile, token_count: int, codec: str) -> CakePlan:
    """The best meeting point of a history that is stored as a whole, from the better source."""
    chunk_count = token_count // PLANNED_CHUNK_TOKENS
    history = History(
        prompt_tokens=token_count + 1,
        chunk_tokens=PLANNED_CHUNK_TOKENS,
        is_stored=(True,) * chunk_count,
    )
    return plan_cake(
        history,
        ComputeCost.of_profile(profile, shape.layer_count),
        {
            source: LoadCost.of_profile(
                profile,
                source,
                layer_count=shape.layer_count,
                chunk_tokens=PLANNED_CHUNK_TOKENS,
                codec=codec,
            )
            for source in (Source.HIDDEN, Source.KV)
        },
        token_budget=PLANNED_STEP_TOKENS,
    )


def _age_note(age_s: float) -> str:
    days = int(age_s / _DAY_S)
    if days < OLD_PROFILE_DAYS:
        return ""
    return (
        f"the costs of this machine were measured {days} days ago; "
        "`python -m engine_adapters.runner calibrate MODEL` measures them again"
    )


def _machine_note(profile: CostProfile, machine: str) -> str:
    if machine in {"", profile.machine}:
        return ""
    return (
        f"the costs were measured on {profile.machine}, and this is {machine}; "
        "`python -m engine_adapters.runner calibrate MODEL` measures them here"
    )


def _codec_note(profile: CostProfile, codec: str) -> str:
    if codec in {RAW, profile.codec}:
        return ""
    return (
        f"the costs of this machine say nothing of decoding {codec}, which counts as if it took "
        f"no time; `python -m engine_adapters.runner calibrate MODEL --codec {codec}` measures it"
    )
