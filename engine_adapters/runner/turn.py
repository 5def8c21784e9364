"""One turn of a conversation: a prompt in, generated tokens and a report out."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from engine_adapters.restore import ComputeCost, LoadCost, Mode, Source
from engine_adapters.runner.cake_restorer import CakeRestorer
from engine_adapters.runner.engine import TOKEN_BUDGET, Engine
from engine_adapters.runner.fingerprint import model_fingerprint
from engine_adapters.runner.mode_choice import MEASURED_MODES, ModeChoice, choose_schedule
from engine_adapters.runner.model import Model
from engine_adapters.runner.profile_place import find_profile, machine_name
from engine_adapters.runner.request import Completion
from engine_adapters.runner.restorer import SPAN_BYTES, SPAN_TOKENS, StateRestorer
from engine_adapters.runner.sampling import Sampling
from engine_adapters.runner.save_queue import SaveReport
from engine_adapters.runner.saver import StateSaver
from engine_adapters.runner.state_format import CHUNK_TOKENS, StateFormat, shape_of
from kvstored_client import RAW, Client, Order, SnapshotGeometry

SPAN_BYTES_MAX = 1024**3
"""Of the largest models; four of them are what a daemon allows an arena unless told otherwise."""

ARENA_SPANS = 4
"""Two for the spans in flight, the others for snapshots of steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a turn uses the store; ``socket`` None is the client's default.

    ``profile`` is the file of the costs that ``mode`` balances; None is the default place.
    ``codec`` names how states are encoded (``engine_adapters.codecs.registry``).
    ``arena_bytes`` None fits the model.
    """

    socket: str | None = None
    salt: str = ""
    arena_bytes: str | None = None
    chunk_tokens: int = CHUNK_TOKENS
    mode: Mode = Mode.KV
    profile: Path | None = None
    codec: str = RAW
    order: Order = Order.LAYER_FIRST
    saves: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnReport:
    """What a turn did; without a store ``save`` is all zero and ``counters`` empty.

    ``choice`` is the schedule of the mode, ``codec`` how states are encoded; both are None
    without a store.
    """

    completion: Completion
    save: SaveReport
    counters: dict[str, int]
    choice: ModeChoice | None = None
    codec: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Store:
    """What of the store an engine uses: nothing when every layer is computed."""

    choice: ModeChoice
    client: Client | None = None
    restorer: StateRestorer | CakeRestorer | None = None
    saver: StateSaver | None = None


def take_turn(
    model: Model,
    directory: Path,
    prompt: Sequence[int],
    *,
    new_tokens_max: int,
    sampling: Sampling,
    store: StoreOptions | None,
    token_budget: int = TOKEN_BUDGET,
) -> TurnReport:
    """Runs ``prompt`` through ``model``, loaded from ``directory``.

    With a store, the history is restored as far as it is stored, and what was computed
    is durable when the function returns. A store that fails only costs time. Raises
    RequestError for a prompt that can never run, ModeError and ProfileError for a mode
    that cannot be planned, CodecError for a codec that cannot be used.
    """
    with ExitStack() as stack:
        opened: _Store | None = None
        if store is not None:
            opened = _open(stack, model, directory, store, token_budget=token_budget)
        saver = None if opened is None else opened.saver
        client = None if opened is None else opened.client
        engine = Engine(
            model,
            cache_tokens=len(prompt) + new_tokens_max,
            token_budget=token_budget,
            requests_max=1,
            sink=saver,
            restorer=None if opened is None else opened.restorer,
        )
        engine.warm_up()
        engine.add_request(prompt, new_tokens_max=new_tokens_max, sampling=sampling)
        (completion,) = engine.run()
        return TurnReport(
            completion=completion,
            save=SaveReport() if saver is None else saver.finish(),
            counters={} if client is None else dict(client.counters),
            choice=None if opened is None else opened.choice,
            codec=None if store is None else store.codec,
        )


def span_bytes_of(state_format: StateFormat) -> int:
    """Arena bytes of a span of the restorer: a whole one of this model, as far as that goes."""
    chunks = -(-SPAN_TOKENS // state_format.layout.chunk_tokens)
    return max(SPAN_BYTES, min(state_format.span_bytes(chunks), SPAN_BYTES_MAX))


def arena_bytes_of(state_format: StateFormat, token_budget: int) -> int:
    """Arena bytes of a turn: half for spans, half for snapshots of steps.

    No codec makes snapshots smaller. No more than a daemon allows unless told otherwise.
    """
    snapshot_bytes = SnapshotGeometry(state_format.states, token_budget).byte_count
    wanted = ARENA_SPANS * max(span_bytes_of(state_format), snapshot_bytes)
    return min(wanted, ARENA_SPANS * SPAN_BYTES_MAX)


def _open(
    stack: ExitStack, model: Model, directory: Path, store: StoreOptions, *, token_budget: int
) -> _Store:
    """Plans the mode, connects, and makes restorer and saver; ``stack`` closes them."""
    fingerprint = model_fingerprint(directory, model.config)
    # A file that nobody named cannot be wrong for a mode that does not look at costs.
    is_wanted = store.profile is not None or store.mode in MEASURED_MODES
    profile = find_profile(model, fingerprint, store.profile) if is_wanted else None
    if profile is not None:
        whole = StateFormat.of_model(model, fingerprint, chunk_tokens=store.chunk_tokens)
        profile = profile.moving(whole.encoded(store.codec).moved_share)
    choice = choose_schedule(
        store.mode,
        shape_of(model),
        profile,
        now_s=time.time(),
        machine=machine_name(model.device),
        codec=store.codec,
    )
    if choice.schedule.count(Source.COMPUTE) == choice.schedule.layer_count:
        return _Store(choice=choice)
    state_format = StateFormat.of_model(
        model, fingerprint, schedule=choice.schedule, chunk_tokens=store.chunk_tokens
    ).encoded(store.codec)
    span_bytes = span_bytes_of(state_format)
    arena_bytes = store.arena_bytes or f"{arena_bytes_of(state_format, token_budget)}"
    client = stack.enter_context(
        Client(store.socket, arena_bytes=arena_bytes, name="runner", salt=store.salt)
    )
    client.available()
    restorer: StateRestorer | CakeRestorer
    if choice.is_cake and profile is not None:
        restorer = CakeRestorer(
            client,
            state_format,
            model,
            compute=ComputeCost.of_profile(profile, choice.schedule.layer_count),
            load=LoadCost.of_profile(
                profile,
                choice.schedule.sources[0],
                layer_count=choice.schedule.layer_count,
                chunk_tokens=store.chunk_tokens,
                codec=store.codec,
            ),
            token_budget=token_budget,
            span_bytes=span_bytes,
        )
    else:
        restorer = StateRestorer(
            client,
            state_format,
            model,
            order=store.order,
            span_bytes=span_bytes,
            step_tokens=token_budget,
        )
    stack.callback(restorer.close)
    saver: StateSaver | None = None
    if store.saves:
        saver = StateSaver(client, state_format, device=model.device)
        stack.callback(saver.close)
    return _Store(choice=choice, client=client, restorer=restorer, saver=saver)
