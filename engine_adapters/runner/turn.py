"""One turn of a conversation: a prompt in, generated tokens and a report out."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from engine_adapters.restore import (
    LEAST_WAIT_S,
    ComputeCost,
    CostProfile,
    LayerRates,
    LoadCost,
    Mode,
    Preload,
    Source,
)
from engine_adapters.runner.calibrate.compute_costs import rough_compute_cost
from engine_adapters.runner.calibrate.profile_place import find_profile, machine_name
from engine_adapters.runner.conversation.continued import (
    ContinuedConversation,
    ConversationStore,
)
from engine_adapters.runner.engine.engine import TOKEN_BUDGET, Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.sampling import Sampling
from engine_adapters.runner.model.errors import RequestError
from engine_adapters.runner.model.fingerprint import model_fingerprint
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import (
    SPAN_BYTES,
    SPAN_TOKENS,
    RestoreOptions,
    Way,
)
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.save_queue import SaveReport
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.mode_choice import MEASURED_MODES, ModeChoice, choose_schedule
from engine_adapters.runner.states.state_format import CHUNK_TOKENS, StateFormat, shape_of
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
    ``arena_bytes`` None fits the model. ``least_wait_s`` is how long the store is waited for
    however little there is to compute (modes that divide layers). With ``preload`` LAYERS new
    tokens are computed while the layers of their history load; AUTO does so with conversations
    where the profile says that it is faster.
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
    least_wait_s: float = LEAST_WAIT_S
    preload: Preload = Preload.AUTO


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationOptions:
    """The conversation that a turn continues; the store keeps it under this ``name``.

    ``opening`` is the prompt where it is empty so far; any other turn has the prompt itself.
    ``sink_tokens`` stay at the front when its window overflows.
    """

    name: str
    opening: Sequence[int]
    sink_tokens: int = 0


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
class OpenedStore:
    """What of the store an engine uses: nothing of it when every layer is computed."""

    choice: ModeChoice
    state_format: StateFormat | None = None
    client: Client | None = None
    restorer: Restorer | None = None
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
    conversation: ConversationOptions | None = None,
) -> TurnReport:
    """Runs ``prompt`` through ``model``, loaded from ``directory``.

    With a ``conversation`` it follows what that has said so far; turn and answer belong to it when
    the function returns, unless the store only restores. Raises ConversationError where the store
    cannot tell what was said, or keep it.

    With a store, the history is restored as far as it is stored, and what was computed
    is durable when the function returns. A store that fails only costs time. Raises
    RequestError for a prompt that can never run, ModeError and ProfileError for a mode
    that cannot be planned, CodecError for a codec that cannot be used, StepError where the
    model cannot be computed.
    """
    with ExitStack() as stack:
        opened: OpenedStore | None = None
        if store is not None:
            continues = conversation is not None
            opened = open_store(
                stack, model, directory, store, token_budget=token_budget, continues=continues
            )
        saver = None if opened is None else opened.saver
        client = None if opened is None else opened.client
        continued: ContinuedConversation | None = None
        if conversation is not None:
            continued = _continue(stack, model, opened, conversation)
            prompt = prompt if continued.told.token_ids else conversation.opening
        engine = Engine(
            model,
            cache_tokens=_cache_tokens(model, len(prompt) + new_tokens_max, continued),
            token_budget=token_budget,
            requests_max=1,
            sink=saver,
            restorer=None if opened is None else opened.restorer,
        )
        engine.warm_up()
        engine.add_request(
            prompt, new_tokens_max=new_tokens_max, sampling=sampling, conversation=continued
        )
        (completion,) = engine.run()
        if completion.error is not None:
            if continued is not None:
                continued.abandon()
            raise completion.error
        save = SaveReport() if saver is None else saver.finish()
        if continued is not None and saver is not None:
            continued.end_turn(completion.token_ids, completion.cuts)
        return TurnReport(
            completion=completion,
            save=save,
            counters={} if client is None else dict(client.counters),
            choice=None if opened is None else opened.choice,
            codec=None if store is None else store.codec,
        )


def _cache_tokens(model: Model, token_count: int, continued: ContinuedConversation | None) -> int:
    """Of a turn with ``token_count`` tokens, its answer included."""
    if continued is None:
        return token_count
    # A longer one is cut: it never has more than the model's positions.
    return min(token_count + len(continued.told.token_ids), model.config.position_count)


def _continue(
    stack: ExitStack, model: Model, opened: OpenedStore | None, options: ConversationOptions
) -> ContinuedConversation:
    restorer = None if opened is None else opened.restorer
    if opened is None or opened.client is None or opened.state_format is None or restorer is None:
        raise RequestError(
            f"conversation {options.name!r} needs a store, and a mode that stores states"
        )
    store = ConversationStore(
        opened.client,
        opened.state_format,
        model,
        saver=opened.saver,
        options=restorer.options,
        rates=restorer.rates,
    )
    stack.callback(store.close)
    return store.open(options.name, sink_tokens=options.sink_tokens)


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


def open_store(
    stack: ExitStack,
    model: Model,
    directory: Path,
    store: StoreOptions,
    *,
    token_budget: int,
    continues: bool = False,
) -> OpenedStore:
    """Plans the mode, connects, and makes restorer and saver; ``stack`` closes them."""
    fingerprint = model_fingerprint(directory, model.config)
    # A file that nobody named cannot be wrong for a mode that does not look at costs.
    is_wanted = store.profile is not None or store.mode in MEASURED_MODES
    # The window of a conversation comes as costs say, whatever the mode.
    is_wanted |= continues and store.preload is Preload.AUTO
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
        return OpenedStore(choice=choice)
    state_format = StateFormat.of_model(
        model, fingerprint, schedule=choice.schedule, chunk_tokens=store.chunk_tokens
    ).encoded(store.codec)
    span_bytes = span_bytes_of(state_format)
    arena_bytes = store.arena_bytes or f"{arena_bytes_of(state_format, token_budget)}"
    client = stack.enter_context(
        Client(store.socket, arena_bytes=arena_bytes, name="runner", salt=store.salt)
    )
    client.available()
    options = _restore_options(model, store, profile, choice, state_format, token_budget)
    restorer = Restorer(client, state_format, model, replace(options, span_bytes=span_bytes))
    stack.callback(restorer.close)
    saver: StateSaver | None = None
    if store.saves:
        saver = StateSaver(client, state_format, device=model.device)
        stack.callback(saver.close)
    return OpenedStore(
        choice=choice, state_format=state_format, client=client, restorer=restorer, saver=saver
    )


def _restore_options(
    model: Model,
    store: StoreOptions,
    profile: CostProfile | None,
    choice: ModeChoice,
    state_format: StateFormat,
    token_budget: int,
) -> RestoreOptions:
    """What the mode that was chosen asks of a restorer."""
    layer_count = choice.schedule.layer_count
    by_layers = store.preload is Preload.LAYERS
    options = RestoreOptions(
        way=Way.LAYERS if by_layers else Way.SPANS,
        order=store.order,
        step_tokens=token_budget,
        least_wait_s=store.least_wait_s,
        preload=store.preload,
    )
    if profile is None:
        return replace(options, compute=rough_compute_cost(model, step_tokens=token_budget))
    options = replace(
        options,
        compute=ComputeCost.of_profile(profile, layer_count),
        # None where the mode has one source whatever it costs.
        layer_rates=(_layer_rates(profile, state_format) if store.mode in MEASURED_MODES else None),
        window_rates=_layer_rates(profile, state_format),
    )
    if by_layers or not choice.is_cake:
        return options
    load = LoadCost.of_profile(
        profile,
        choice.schedule.sources[0],
        layer_count=layer_count,
        chunk_tokens=store.chunk_tokens,
        codec=store.codec,
    )
    return replace(options, way=Way.BOTH_ENDS, load=load, doubt=profile.doubt)


def _layer_rates(profile: CostProfile, state_format: StateFormat) -> LayerRates:
    """What a layer costs by the profile, to be corrected by what it will really take."""
    codec = RAW if state_format.codec is None else state_format.layout.codec
    # Reads are counted in the bytes that they move.
    share = state_format.moved_share
    return LayerRates(
        profile.costs(profile.planned_tokens, codec=codec),
        profile.planned_tokens,
        hidden_bytes=profile.hidden_bytes * share,
        kv_bytes=profile.kv_bytes * share,
    )
