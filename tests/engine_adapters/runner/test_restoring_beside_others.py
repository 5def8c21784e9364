"""Other requests go on while one is being restored. Steps are counted, not time."""

from collections.abc import Callable
from typing import Any

import pytest

from engine_adapters.device_copies.landing import Landing
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import ComputeCost, LayerSchedule, LoadCost, Source
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.restoration import PIECE_TOKENS
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.cake_restoration import CakeRestoration
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.restore_options import SPAN_BYTES, RestoreOptions, Way
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client.testing import MemoryClient, StoredChunk
from tests.engine_adapters.runner.arrivals import Arrivals
from tests.engine_adapters.runner.memory import Clock, check_released, make_store
from tests.engine_adapters.runner.step_log import StepLog
from tests.support.waiting import wait_until

MakeTokens = Callable[[int, int], list[int]]
CHUNK_TOKENS = 8
HISTORY_TOKENS = 12 * CHUNK_TOKENS
STEPS_MAX = 5000
TIMEOUT_S = 600.0
"""Of readers, whose clock is the machine's: no machine is so slow."""
SCHEDULES = {
    "kv": LayerSchedule.of((Source.KV, 3)),
    "hidden": LayerSchedule.of((Source.HIDDEN, 3)),
    "hcache": LayerSchedule.of((Source.COMPUTE, 1), (Source.HIDDEN, 1), (Source.KV, 1)),
}


def format_of(model: Model, schedule: LayerSchedule) -> StateFormat:
    return StateFormat.of_model(model, "beside", schedule=schedule, chunk_tokens=CHUNK_TOKENS)


def stored(model: Model, state_format: StateFormat, prompt: list[int]) -> dict[bytes, StoredChunk]:
    client = MemoryClient(make_store())
    saver = StateSaver(client, state_format)
    engine = Engine(model, cache_tokens=256, token_budget=32, requests_max=1, sink=saver)
    engine.add_request(prompt, new_tokens_max=1)
    engine.run()
    saver.close()
    return client.store.chunks


@pytest.fixture
def prompt(make_tokens: MakeTokens) -> list[int]:
    return make_tokens(HISTORY_TOKENS + 3, 1)


@pytest.fixture(params=SCHEDULES)
def state_format(request: pytest.FixtureRequest, model: Model) -> StateFormat:
    return format_of(model, SCHEDULES[request.param])


def cake_restorer(
    client: MemoryClient,
    state_format: StateFormat,
    model: Model,
    *,
    span_bytes: int = SPAN_BYTES,
) -> Restorer:
    """Costs by which computing a chunk takes much longer than loading it."""
    return Restorer(
        client,
        state_format,
        model,
        RestoreOptions(
            way=Way.BOTH_ENDS,
            compute=ComputeCost(step_s=1e6, token_s=1e6, attention_s=0.0),
            load=LoadCost(chunk_s=1.0),
            step_tokens=16,
            span_bytes=span_bytes,
            timeout_s=TIMEOUT_S,
            opening_s_max=TIMEOUT_S,
        ),
    )


def readers_of(restorer: Restorer) -> list[SpanReader]:
    return [each for each in restorer._share.holders if isinstance(each, SpanReader)]


def step_until_reading(engine: Engine, restorer: Restorer, client: MemoryClient) -> None:
    """Two steps: the first begins all restorations, the second asks for what is stored.

    However long the readers' threads take, no other request gets on meanwhile.
    """
    assert engine.step() == []
    readers = readers_of(restorer)
    wait_until(lambda: all(reader.stored is not None for reader in readers))
    assert engine.step() == []
    wait_until(lambda: bool(client.store.reads))


def run_until(engine: Engine, is_reached: Callable[[], bool]) -> None:
    for _ in range(STEPS_MAX):
        if is_reached():
            return
        engine.step()
    raise AssertionError("the engine never got there")


def test_a_request_decodes_while_another_one_is_restored(
    model: Model, state_format: StateFormat, prompt: list[int], make_tokens: MakeTokens
) -> None:
    client = MemoryClient(make_store(stored(model, state_format, prompt)))
    arrivals = Arrivals(client.store)
    restorer = Restorer(
        client, state_format, model, RestoreOptions(step_tokens=16, timeout_s=TIMEOUT_S)
    )
    log = StepLog()
    engine = Engine(
        model, cache_tokens=256, token_budget=16, requests_max=2, sink=log, restorer=restorer
    )
    other = engine.add_request(make_tokens(5, 2), new_tokens_max=60, stop_token_ids=())
    restored = engine.add_request(prompt, new_tokens_max=5, stop_token_ids=())
    step_until_reading(engine, restorer, client)
    before = len(log.steps_of(other))
    # Nothing arrives: the restoration waits, and the other request does not.
    for _ in range(10):
        engine.step()
    assert len(log.steps_of(other)) == before + 10
    assert log.steps_of(restored) == []
    assert arrivals.waits == 0
    completions: dict[int, Completion] = {}
    while not engine.is_idle:
        arrivals.deliver(1)
        completions |= {done.request_id: done for done in engine.step()}
    restorer.close()
    plain = Engine(model, cache_tokens=256)
    plain.add_request(prompt, new_tokens_max=5, stop_token_ids=())
    assert completions[restored].token_ids == plain.run()[0].token_ids
    assert completions[restored].restore.restored_tokens == HISTORY_TOKENS
    assert log.announced == {other: 0, restored: HISTORY_TOKENS}
    check_released(client.store)


@pytest.mark.parametrize(("piece_tokens", "layers"), [(PIECE_TOKENS, 3), (64, 2), (1, 1)])
def test_one_layer_of_a_span_a_step_was_taken_however_much_had_arrived(
    piece_tokens: int,
    layers: int,
    model: Model,
    prompt: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A piece of so many tokens over all layers, and one layer of a span at least."""
    taken: list[int] = []
    load = LayerLoader.load

    def note_and_load(self: LayerLoader, layer: int, *arguments: Any, **options: Any) -> Landing:
        taken.append(layer)
        return load(self, layer, *arguments, **options)

    monkeypatch.setattr(LayerLoader, "load", note_and_load)
    state_format = format_of(model, SCHEDULES["kv"])
    client = MemoryClient(make_store(stored(model, state_format, prompt)))
    arrivals = Arrivals(client.store)
    restorer = Restorer(client, state_format, model)
    restoration = restorer.begin(prompt, cache=model.make_cache(128), first_slot=0)
    assert restoration is not None
    (reader,) = readers_of(restorer)

    def is_reading() -> bool:
        assert restoration.advance(16) == 0
        # A read that was begun is a span a moment later.
        return bool(reader.spans)

    wait_until(is_reading)
    arrivals.deliver(100)
    restoration.advance(16, piece_tokens=piece_tokens)
    assert taken == list(range(layers))
    restoration.close()
    restorer.close()


@pytest.mark.parametrize("name", ["kv", "cake"])
def test_restorations_starved_each_other_and_the_saver_of_arena(
    name: str, model: Model, prompt: list[int], make_tokens: MakeTokens
) -> None:
    """Eight of three spans each, and a request that is saved, in an arena of four spans."""
    state_format = format_of(model, SCHEDULES["kv"])
    span_bytes = state_format.span_bytes(4)
    chunks = stored(model, state_format, prompt)
    client = MemoryClient(make_store(chunks), room_bytes=4 * span_bytes)
    arrivals = Arrivals(client.store)
    restorer = (
        Restorer(
            client, state_format, model, RestoreOptions(span_bytes=span_bytes, timeout_s=TIMEOUT_S)
        )
        if name == "kv"
        else cake_restorer(client, state_format, model, span_bytes=span_bytes)
    )
    saver = StateSaver(client, state_format)
    engine = Engine(
        model,
        cache_tokens=1024,
        token_budget=9,
        requests_max=9,
        sink=saver,
        restorer=restorer,
    )
    saved = engine.add_request(make_tokens(CHUNK_TOKENS, 2), new_tokens_max=40, stop_token_ids=())
    for _ in range(8):
        engine.add_request(prompt, new_tokens_max=1, stop_token_ids=())
    completions: dict[int, Completion] = {}
    # Readers that hold nothing look for room from here on.
    step_until_reading(engine, restorer, client)
    while not engine.is_idle:
        completions |= {done.request_id: done for done in engine.step()}
        arrivals.deliver(1)
        saver.finish()
    report = saver.finish()
    saver.close()
    restorer.close()
    del completions[saved]
    assert [each.restore.restored_tokens for each in completions.values()] == [HISTORY_TOKENS] * 8
    assert report.dropped_tokens == 0
    check_released(client.store)


def test_nothing_is_computed_while_all_wait(model: Model, prompt: list[int]) -> None:
    state_format = format_of(model, SCHEDULES["kv"])
    client = MemoryClient(make_store(stored(model, state_format, prompt)))
    arrivals = Arrivals(client.store)
    restorer = Restorer(client, state_format, model, RestoreOptions(timeout_s=TIMEOUT_S))
    log = StepLog()
    engine = Engine(
        model, cache_tokens=256, token_budget=16, requests_max=1, sink=log, restorer=restorer
    )
    engine.add_request(prompt, new_tokens_max=1, stop_token_ids=())
    (completion,) = engine.run()
    restorer.close()
    # It waited for each layer, and for no layer twice.
    assert arrivals.waits == model.config.layer_count
    assert len(log.steps) == 1
    assert completion.computed_tokens == 3


@pytest.mark.parametrize("is_adaptive", [True, False])
def test_a_prefill_goes_before_a_restoration_or_in_order_of_arrival(
    is_adaptive: bool, model: Model, prompt: list[int], make_tokens: MakeTokens
) -> None:
    state_format = format_of(model, SCHEDULES["kv"])
    chunks = stored(model, state_format, prompt[: 6 * CHUNK_TOKENS + 1])
    client, clock = MemoryClient(make_store(chunks)), Clock()
    Arrivals(client.store)
    restorer = Restorer(
        client,
        state_format,
        model,
        RestoreOptions(
            way=Way.BOTH_ENDS,
            compute=ComputeCost(step_s=1.0, token_s=1.0, attention_s=0.0),
            load=LoadCost(chunk_s=16.0),
            step_tokens=16,
            opening_s_max=600.0,
            clock=clock,
        ),
    )
    log = StepLog()
    engine = Engine(
        model,
        cache_tokens=512,
        token_budget=16,
        requests_max=2,
        sink=log,
        restorer=restorer,
        is_adaptive=is_adaptive,
        clock=clock,
    )
    restored = engine.add_request(prompt, new_tokens_max=2, stop_token_ids=())
    while not client.store.reads:
        engine.step()
        restoration = engine._running[restored].restoration
        assert isinstance(restoration, CakeRestoration)
        if restoration.plan is not None:
            wait_until(lambda: bool(client.store.reads))
    other = engine.add_request(make_tokens(100, 7), new_tokens_max=2, stop_token_ids=())
    first = len(log.steps)
    engine.step()
    # Nothing of it is computed before it is known that nothing of it is stored.
    wait_until(lambda: readers_of(restorer)[-1].stored is not None)
    run_until(engine, lambda: len(log.steps) > first + 3)
    counts = [dict(parts) for parts in log.steps[first + 1 : first + 4]]
    if is_adaptive:
        assert [each.get(other, 0) for each in counts] == [16, 16, 16]
    else:
        assert [each.get(other, 0) for each in counts] == [0, 0, 0]
        assert [each[restored] for each in counts] == [16, 16, 16]
    engine.run()
    restorer.close()


def test_a_restoration_by_both_ends_leaves_the_whole_step_to_others(
    model: Model, prompt: list[int], make_tokens: MakeTokens
) -> None:
    state_format = format_of(model, SCHEDULES["hidden"])
    client = MemoryClient(make_store(stored(model, state_format, prompt)))
    arrivals = Arrivals(client.store)
    restorer = cake_restorer(client, state_format, model)
    log = StepLog()
    engine = Engine(
        model, cache_tokens=256, token_budget=16, requests_max=2, sink=log, restorer=restorer
    )
    other = engine.add_request(make_tokens(5, 2), new_tokens_max=60, stop_token_ids=())
    restored = engine.add_request(prompt, new_tokens_max=5, stop_token_ids=())
    step_until_reading(engine, restorer, client)
    for _ in range(12):
        arrivals.deliver(1)
        engine.step()
    completions = {done.request_id: done for done in engine.run()}
    restorer.close()
    assert completions[restored].restore.restored_tokens == HISTORY_TOKENS
    assert log.announced[restored] == HISTORY_TOKENS
    assert len(log.steps_of(other)) == 60


def test_a_step_without_tokens_takes_what_has_arrived(model: Model, prompt: list[int]) -> None:
    state_format = format_of(model, SCHEDULES["kv"])
    client = MemoryClient(make_store(stored(model, state_format, prompt)))
    arrivals = Arrivals(client.store)
    restorer = cake_restorer(client, state_format, model)
    log = StepLog()
    engine = Engine(
        model, cache_tokens=256, token_budget=16, requests_max=1, sink=log, restorer=restorer
    )
    engine.add_request(prompt, new_tokens_max=1, stop_token_ids=())

    def is_restored() -> bool:
        assert engine.step(token_budget=0) == []
        arrivals.deliver(1)
        (request,) = engine._running.values()
        return not request.is_restoring

    # Such steps do not wait for the reader's thread, so that no number of them is enough.
    wait_until(is_restored)
    assert log.steps == []
    (completion,) = engine.run()
    assert completion.restore.restored_tokens == HISTORY_TOKENS
    restorer.close()
