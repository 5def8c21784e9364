"""Whatever a layout stores of each layer, restored keys and values are those computed."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from engine_adapters.device_copies.landing import Landing
from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import THREAD_NAME as READER
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.model.errors import PositionError
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore import span_restoration
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import LayoutError, Order, SliceState, StateKind
from kvstored_client.testing import Delivery, MemoryClient, Wait
from kvstored_protos.v1.store_pb2 import ReadRequest
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.memory import (
    at,
    bring_layers_on_wait,
    check_released,
    make_store,
)
from tests.engine_adapters.runner.modes import (
    EXACT,
    LAYERS,
    PROMPT_TOKENS,
    SCHEDULES,
    VARIANTS,
    WHOLE_CHUNKS,
    FirstTurn,
    MakeTokens,
    check_restored,
    run,
)
from tests.engine_adapters.runner.restored import restored

Plain = Callable[[Model, list[int]], tuple[Completion, Engine]]


@pytest.fixture(scope="module", params=VARIANTS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    directory = tmp_path_factory.mktemp(request.param)
    VARIANTS[request.param](directory)
    return Model.from_directory(directory)


@pytest.fixture(params=SCHEDULES)
def schedule(request: pytest.FixtureRequest) -> LayerSchedule:
    return LayerSchedule.of(*SCHEDULES[request.param])


@pytest.fixture
def state_format(model: Model, schedule: LayerSchedule) -> StateFormat:
    return StateFormat.of_model(model, "modes", schedule=schedule, chunk_tokens=CHUNK_TOKENS)


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    with MemoryClient(make_store()) as client:
        yield client
        check_released(client.store)


@pytest.fixture
def prompt(make_tokens: MakeTokens) -> list[int]:
    return make_tokens(PROMPT_TOKENS, 1)


@pytest.fixture(scope="module")
def first_turns() -> dict[tuple[Model, LayerSchedule], FirstTurn]:
    """Those that a test has had."""
    return {}


@pytest.fixture(scope="module")
def plain() -> Plain:
    """Turns without a store, each computed once."""
    turns: dict[tuple[Model, tuple[int, ...]], tuple[Completion, Engine]] = {}

    def turn(model: Model, prompt: list[int]) -> tuple[Completion, Engine]:
        key = model, tuple(prompt)
        if key not in turns:
            turns[key] = run(model, prompt)
        return turns[key]

    return turn


@pytest.fixture
def computed(
    model: Model,
    schedule: LayerSchedule,
    state_format: StateFormat,
    client: MemoryClient,
    prompt: list[int],
    first_turns: dict[tuple[Model, LayerSchedule], FirstTurn],
) -> tuple[Completion, Engine]:
    """A first turn, computed and saved; what the store has of it is the test's own."""
    turn = first_turns.get((model, schedule))
    if turn is None:
        saver = StateSaver(client, state_format)
        completion, engine = run(model, prompt, saver=saver)
        assert saver.finish().dropped_tokens == 0
        saver.close()
        turn = FirstTurn(completion, engine, dict(client.store.chunks))
        first_turns[model, schedule] = turn
    client.store.chunks.update(turn.chunks)
    return turn.completion, turn.engine


@pytest.mark.parametrize("span_chunks", [1, 4, 100])
def test_restored_states_equal_the_computed_ones(
    span_chunks: int,
    model: Model,
    state_format: StateFormat,
    client: MemoryClient,
    computed: tuple[Completion, Engine],
) -> None:
    span_bytes = state_format.span_bytes(span_chunks)
    restorer = Restorer(
        client, state_format, model, RestoreOptions(span_bytes=span_bytes, step_tokens=12)
    )
    check_restored(restorer, computed, model, WHOLE_CHUNKS)
    if span_chunks == 100:
        assert {len(read.keys) for read in client.store.reads} == {WHOLE_CHUNKS}


@pytest.mark.parametrize("order", list(Order))
def test_a_second_turn_generates_the_same_tokens(
    order: Order,
    model: Model,
    state_format: StateFormat,
    client: MemoryClient,
    computed: tuple[Completion, Engine],
    make_tokens: MakeTokens,
    plain: Plain,
) -> None:
    prompt = [*computed[0].token_ids, *make_tokens(11, 2)]
    span_bytes = state_format.span_bytes(4)
    restorer = Restorer(
        client, state_format, model, RestoreOptions(order=order, span_bytes=span_bytes)
    )
    restored, _ = run(model, prompt, restorer=restorer)
    assert restored.restore.restored_tokens == WHOLE_CHUNKS * CHUNK_TOKENS
    assert restored.token_ids == plain(model, prompt)[0].token_ids
    assert {read.order for read in client.store.reads} == {order}


def test_only_stored_layers_are_read(
    model: Model,
    schedule: LayerSchedule,
    state_format: StateFormat,
    client: MemoryClient,
    computed: tuple[Completion, Engine],
) -> None:
    restorer = Restorer(client, state_format, model)
    report = restored(restorer, computed[0].token_ids, cache=model.make_cache(128), first_slot=0)
    kinds = schedule.kinds()
    read = [
        read.first_layer + layer for read in client.store.reads for layer in range(read.layer_count)
    ]
    assert read == [layer for layer, kind in enumerate(kinds) if kind is not StateKind.NONE]
    assert report.device_bytes == WHOLE_CHUNKS * state_format.layout.chunk_bytes()


@pytest.mark.parametrize("span_chunks", [1, 4, 100])
@pytest.mark.parametrize("layer", [0, LAYERS - 1])
def test_a_slice_that_is_lost_ends_the_restoration_before_its_chunk(
    layer: int,
    span_chunks: int,
    model: Model,
    state_format: StateFormat,
    client: MemoryClient,
    computed: tuple[Completion, Engine],
    plain: Plain,
) -> None:
    """Whatever other layers brought of it, and of the chunks behind it, is computed again."""
    layer = max(layer, state_format.recomputed_layers)
    keys = client.prefix_keys(state_format.layout, computed[0].token_ids)
    client.store.faults.lost_slices = {(keys[6], layer)}
    span_bytes = state_format.span_bytes(span_chunks)
    restorer = Restorer(client, state_format, model, RestoreOptions(span_bytes=span_bytes))
    check_restored(restorer, computed, model, 6)
    prompt = [*computed[0].token_ids, 1, 2, 3]
    restored, engine = run(model, prompt, restorer=restorer)
    expected, plain_engine = plain(model, prompt)
    assert restored.restore.restored_tokens == 6 * CHUNK_TOKENS
    assert restored.token_ids == expected.token_ids
    assert (engine._cache.keys - plain_engine._cache.keys).abs().max() < 1e-4


def test_a_session_lost_between_layers(
    model: Model,
    state_format: StateFormat,
    client: MemoryClient,
    computed: tuple[Completion, Engine],
    plain: Plain,
) -> None:
    layers = iter(range(state_format.recomputed_layers, LAYERS))

    def die_at_the_last_layer() -> None:
        if next(layers) == LAYERS - 1:
            client.store.kill()

    bring_layers_on_wait(client.store, die_at_the_last_layer)
    restorer = Restorer(client, state_format, model)
    prompt = [*computed[0].token_ids, 1, 2, 3]
    restored, _ = run(model, prompt, restorer=restorer)
    assert restored.restore.restored_tokens == 0
    assert restored.token_ids == plain(model, prompt)[0].token_ids


def test_nothing_is_recomputed_for_chunks_that_are_lost(
    model: Model,
    state_format: StateFormat,
    client: MemoryClient,
    computed: tuple[Completion, Engine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = client.prefix_keys(state_format.layout, computed[0].token_ids)
    client.store.faults.lost_slices = {
        (keys[6], LAYERS - 1),
        (keys[6], state_format.recomputed_layers),
    }
    tokens: list[int] = []
    forward = model.forward

    def counted(token_ids: list[int], *arguments: Any, **options: Any) -> torch.Tensor:
        assert options["layer_stop"] == state_format.recomputed_layers
        tokens.extend(token_ids)
        return forward(token_ids, *arguments, **options)

    monkeypatch.setattr(model, "forward", counted)
    restorer = Restorer(client, state_format, model, RestoreOptions(step_tokens=10))
    restored(restorer, computed[0].token_ids, cache=model.make_cache(128), first_slot=0)
    if state_format.recomputed_layers:
        assert tokens == list(computed[0].token_ids[: 6 * CHUNK_TOKENS])
    else:
        assert tokens == []


@pytest.mark.parametrize(
    "schedule", [LayerSchedule.of((Source.COMPUTE, 1), (Source.HIDDEN, 3))], ids=["hcache"]
)
def test_work_goes_on_while_the_store_reads(
    model: Model,
    state_format: StateFormat,
    client: MemoryClient,
    computed: tuple[Completion, Engine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reads start first; then layers are recomputed; each layer is used before the next."""
    events: list[str] = []
    forward, project = model.forward, model.project

    def logged_forward(*arguments: Any, **options: Any) -> torch.Tensor:
        events.append("recompute")
        return forward(*arguments, **options)

    def logged_project(layer: int, *arguments: Any, **options: Any) -> None:
        events.append(f"project {layer}")
        project(layer, *arguments, **options)

    monkeypatch.setattr(model, "forward", logged_forward)
    monkeypatch.setattr(model, "project", logged_project)
    client.store.faults.before = at(ReadRequest, lambda: events.append("read"))
    bring_layers_on_wait(client.store, lambda: events.append("wait"))
    span_bytes = state_format.span_bytes(WHOLE_CHUNKS // 2)
    restorer = Restorer(
        client, state_format, model, RestoreOptions(span_bytes=span_bytes, step_tokens=1000)
    )
    restored(restorer, computed[0].token_ids, cache=model.make_cache(128), first_slot=0)
    layers = [part for layer in (1, 2, 3) for part in ("wait", f"project {layer}")]
    assert events[0] == "read"
    assert events.count("read") == 2
    # A thread begins the second one, while the first span is still used or computed.
    assert [event for event in events if event != "read"] == ["recompute", *layers] * 2


def bring_from_both_ends(wait: Wait) -> bool:
    """What the engine waits for and its like from the end, as from two devices."""
    if threading.current_thread().name == READER:
        return False
    if wait.chunk is not None:
        wait.read.deliver(len(wait.read.keys) - 1 - wait.chunk, wait.layer)
    wait.deliver()
    return True


@pytest.mark.parametrize("lost_as", [None, SliceState.MISSING, SliceState.LATE])
def test_a_layer_is_made_as_its_leading_chunks_arrive(
    model: Model,
    state_format: StateFormat,
    client: MemoryClient,
    computed: tuple[Completion, Engine],
    monkeypatch: pytest.MonkeyPatch,
    lost_as: SliceState | None,
) -> None:
    monkeypatch.setattr(span_restoration, "LEAST_PIECE_TOKENS", 4 * CHUNK_TOKENS)
    client.store.faults.delivery = Delivery.HELD
    client.store.faults.on_wait = bring_from_both_ends
    tokens = [*computed[0].token_ids, 1]
    restored_chunks = WHOLE_CHUNKS - (lost_as is not None)
    if lost_as is not None:
        client.store.faults.lost_as = lost_as
        keys = client.prefix_keys(state_format.layout, tokens)
        client.store.faults.lost_slices = {(keys[restored_chunks], LAYERS - 1)}
    cache, plain = model.make_cache(128), model.make_cache(128)
    loaded: list[tuple[int, int]] = []
    load = LayerLoader.load

    def logged(self: LayerLoader, layer: int, states: torch.Tensor, **options: Any) -> Landing:
        loaded.append((layer, len(states)))
        return load(self, layer, states, **options)

    monkeypatch.setattr(LayerLoader, "load", logged)
    wait = Span.wait

    def wait_for_pending(self: Span, chunk: int, layer: int, *, timeout_s: float) -> None:
        assert self.arrived_chunks(layer) <= chunk, "a busy loop"
        assert not self.is_lost(chunk, layer), "a busy loop"
        wait(self, chunk, layer, timeout_s=timeout_s)

    monkeypatch.setattr(Span, "wait", wait_for_pending)
    restorer = Restorer(client, state_format, model)
    report = restored(restorer, tokens, cache=cache, first_slot=0)
    assert report.restored_tokens == restored_chunks * CHUNK_TOKENS
    layers = range(state_format.recomputed_layers, LAYERS)
    # When the first seven have been waited for the last seven are there as well.
    whole = [(layer, count) for layer in layers for count in (4, WHOLE_CHUNKS - 4)]
    if lost_as is not None:
        whole[-1] = (LAYERS - 1, WHOLE_CHUNKS - 5)
    assert loaded == whole
    bring_layers_on_wait(client.store, lambda: None)
    restored(restorer, tokens, cache=plain, first_slot=0)
    count = report.restored_tokens
    assert torch.allclose(cache.keys[:, :count], plain.keys[:, :count], atol=EXACT, rtol=0)
    assert torch.allclose(cache.values[:, :count], plain.values[:, :count], atol=EXACT, rtol=0)


def test_a_model_without_rotary_embedding_cannot_move(
    model: Model,
    state_format: StateFormat,
    client: MemoryClient,
    computed: tuple[Completion, Engine],
) -> None:
    cache = model.make_cache(128)
    restorer = Restorer(client, state_format, model)
    token_ids = computed[0].token_ids
    if model.rotary is None:
        with pytest.raises(PositionError, match="learned absolute positions"):
            restored(restorer, token_ids, cache=cache, first_slot=0, first_position=5)
    elif state_format.recomputed_layers:
        with pytest.raises(PositionError, match="layers of this layout are recomputed"):
            restored(restorer, token_ids, cache=cache, first_slot=0, first_position=5)
    else:
        restored(restorer, token_ids, cache=cache, first_slot=0, first_position=5)
        count = WHOLE_CHUNKS * CHUNK_TOKENS
        computed_cache = computed[1]._cache
        assert (cache.values[:, :count] - computed_cache.values[:, :count]).abs().max() < EXACT
        # The first layer's keys depend on nothing but token and position.
        _, engine = run(model, [*token_ids[:5], *token_ids][: PROMPT_TOKENS + 5])
        wanted = engine._cache.keys[0, 5 : PROMPT_TOKENS + 5]
        assert (cache.keys[0, :PROMPT_TOKENS] - wanted).abs().max() < EXACT


def test_a_layout_that_stores_nothing_is_none(model: Model) -> None:
    nothing = LayerSchedule.of((Source.COMPUTE, LAYERS))
    with pytest.raises(LayoutError, match="must store at least one layer"):
        StateFormat.of_model(model, "modes", schedule=nothing)


def test_a_schedule_of_other_layers_is_refused(model: Model) -> None:
    with pytest.raises(ValueError, match="a schedule of 3 layers does not fit a model of 4"):
        StateFormat.of_model(model, "modes", schedule=LayerSchedule.of((Source.KV, 3)))


def test_steps_have_at_least_a_token(
    model: Model, state_format: StateFormat, client: MemoryClient
) -> None:
    with pytest.raises(ValueError, match="step_tokens must be above 0"):
        Restorer(client, state_format, model, RestoreOptions(step_tokens=0))
