"""From the name of a mode to the source of every layer. Pure."""

from dataclasses import dataclass

from engine_adapters.restore import CostProfile, LayerCosts, LayerSchedule, Mode, schedule_for

PLANNED_TOKENS = 4096
"""Length of the history that is planned for. One for all requests: a layout is chosen
before anything is stored, and states of another layout are not found."""

_MEASURED_MODES = frozenset({Mode.HCACHE, Mode.NAIVE_HYBRID, Mode.AUTO})
"""Modes that balance what was measured; the others do not look at costs."""

_EQUAL_COSTS = LayerCosts(io_hidden_s=1.0, io_kv_s=1.0, compute_s=1.0, project_s=1.0)


OLD_PROFILE_DAYS = 90
"""Behind these the machine may well be another one."""
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
    """A schedule and, where it was not measured, one line that says what was assumed."""

    schedule: LayerSchedule
    note: str = ""


def choose_schedule(
    mode: Mode, shape: ModelShape, profile: CostProfile | None, *, now_s: float
) -> ModeChoice:
    """The source of every layer in ``mode``, by the measured costs of ``profile``.

    ``now_s`` is seconds since 1970; an old profile is used, and its age said.
    Without a profile AUTO takes the smaller of hidden states and KV for all layers, and
    says so. Raises ModeError for HCACHE and NAIVE_HYBRID without a profile.
    """
    if mode not in _MEASURED_MODES:
        return ModeChoice(schedule=schedule_for(mode, _EQUAL_COSTS, shape.layer_count))
    if profile is not None:
        costs = profile.costs(min(PLANNED_TOKENS, shape.position_count))
        schedule = schedule_for(mode, costs, shape.layer_count)
        return ModeChoice(schedule=schedule, note=_age_note(profile.age_s(now_s)))
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


def _age_note(age_s: float) -> str:
    days = int(age_s / _DAY_S)
    if days < OLD_PROFILE_DAYS:
        return ""
    return (
        f"the costs of this machine were measured {days} days ago; "
        "`python -m engine_adapters.runner calibrate MODEL` measures them again"
    )
