"""Other requests go on while one is being restored. Steps are counted, not time."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from engine_adapters.restore import ComputeCost, LayerSchedule, LoadCost, Source
from engine_adapters.runner.cake_restoration import CakeRestoration
from engine_adapters.runner.cake_restorer import CakeRestorer
from engine_adapters.runner.engine import WAIT_S_MAX, Engine
from engine_adapters.runner.layer_loader import LayerLoader
from engine_adapters.runner.model import Model
from engine_adapters.runner.restoration import PIECE_TOKENS
from engine_adapters.runner.restorer import SPAN_BYTES, StateRestorer
from engine_adapters.runner.saver import StateSaver
from engine_adapters.runner.state_format import StateFormat
from engine_adapters.runner.step import NullSink, Segment
from tests.engine_adapters.runner.fake_client import FakeClient, FakeStore
from tests.engine_adapters.runner.scripted_restorations import (
    ScriptedRestoration,
    ScriptedRestorer,
)
from tests.engine_adapters.runner.streamed_client import StreamedClient
from tests.support.waiting import wait_until

MakeTokens = Callable[[int, int], list[int]]
CHUNK_TOKENS = 8
HISTORY_TOKENS = 12 * CHUNK_TOKENS
STEPS_MAX = 5000
SCHEDULES = {
    "kv": LayerSchedule.of((Source.KV, 3)),
    "hidden": LayerSchedule.of((Source.HIDDEN, 3)),
    "hcache": LayerSchedule.of((Source.COMPUTE, 1), (Source.HIDDEN, 1), (Source.KV, 1)),
}


class StepLog(NullSink):
    """Which requests took part in which step, and which were announced when."""

    def __init__(self) -> None:
        self.steps: list[list[tuple[int, int]]] = []
        self.announced: dict[int, int] = {}

    def begin_request(self, request_id: int, token_ids: Sequence[int], stored_tokens: int) -> None:
        assert request_id not in self.announced
        self.announced[request_id] = stored_tokens

    def begin_step(self, segments: Sequence[Segment]) -> None:
        self.steps.append([(part.request_id, part.token_count) for part in segments])

    def steps_of(self, request_id: int) -> list[int]:
        return [n for n, parts in enumerate(self.steps) if request_id in dict(parts)]


def format_of(model: Model, schedule: LayerSchedule) -> StateFormat:
    return StateFormat.of_model(model, "beside", schedule=schedule, chunk_tokens=CHUNK_TOKENS)


def stored(model: Model, state_format: StateFormat, prompt: list[int]) -> FakeStore:
    client = FakeClient(FakeStore())
    saver = StateSaver(client, state_format)
    engine = Engine(model, cache_tokens=256, token_budget=32, requests_max=1, sink=saver)
    engine.add_request(prompt, new_tokens_max=1)
    engine.run()
    saver.close()
    return client.store


@pytest.fixture
def prompt(make_tokens: MakeTokens) -> list[int]:
    return make_tokens(HISTORY_TOKENS + 3, 1)


@pytest.fixture(params=SCHEDULES)
def state_format(request: pytest.FixtureRequest, model: Model) -> StateFormat:
    return format_of(model, SCHEDULES[request.param])


def cake_restorer(
    client: StreamedClient,
    state_format: StateFormat,
    model: Model,
    *,
    span_bytes: int = SPAN_BYTES,
) -> CakeRestorer:
    """Costs by which computing a chunk takes much longer than loading it."""
    return CakeRestorer(
        client,
        state_format,
        model,
        compute=ComputeCost(step_s=1e6, token_s=1e6, attention_s=0.0),
        load=LoadCost(chunk_s=1.0),
        token_budget=16,
        span_bytes=span_bytes,
        opening_s_max=600.0,
    )


def run_until(engine: Engine, is_reached: Callable[[], bool]) -> None:
    for _ in range(STEPS_MAX):
        if is_reached():
            return
        engine.step()
    raise AssertionError("the engine never got there")


def test_a_request_decodes_while_another_one_is_restored(
    model: Model, state_format: StateFormat, prompt: list[int], make_tokens: MakeTokens
) -> None:
    client = StreamedClient(stored(model, state_format, prompt))
    restorer = StateRestorer(client, state_format, model, step_tokens=16)
    log = StepLog()
    engine = Engine(
        model, cache_tokens=256, token_budget=16, requests_max=2, sink=log, restorer=restorer
    )
    other = engine.add_request(make_tokens(5, 2), new_tokens_max=60, stop_token_ids=())
    restored = engine.add_request(prompt, new_tokens_max=5, stop_token_ids=())
    run_until(engine, lambda: bool(client.reads))
    before = len(log.steps_of(other))
    # Nothing arrives: the restoration waits, and the other request does not.
    for _ in range(10):
        engine.step()
    assert len(log.steps_of(other)) == before + 10
    assert log.steps_of(restored) == []
    assert client.waits == 0
    completions = {}
    while not engine.is_idle:
        client.deliver(1)
        completions |= {done.request_id: done for done in engine.step()}
    restorer.close()
    plain = Engine(model, cache_tokens=256)
    plain.add_request(prompt, new_tokens_max=5, stop_token_ids=())
    assert completions[restored].token_ids == plain.run()[0].token_ids
    assert completions[restored].restore.restored_tokens == HISTORY_TOKENS
    assert log.announced == {other: 0, restored: HISTORY_TOKENS}
    assert client.regions_in_use == client.reads_in_flight == 0


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

    def note_and_load(self: LayerLoader, layer: int, *arguments: Any, **options: Any) -> None:
        taken.append(layer)
        load(self, layer, *arguments, **options)

    monkeypatch.setattr(LayerLoader, "load", note_and_load)
    state_format = format_of(model, SCHEDULES["kv"])
    client = StreamedClient(stored(model, state_format, prompt))
    restorer = StateRestorer(client, state_format, model)
    restoration = restorer.begin(prompt, cache=model.make_cache(128), first_slot=0)

    def is_reading() -> bool:
        assert restoration.advance(16) == 0
        return bool(client.reads)

    wait_until(is_reading)
    client.deliver(100)
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
    client = StreamedClient(stored(model, state_format, prompt), arena_bytes=4 * span_bytes)
    restorer = (
        StateRestorer(client, state_format, model, span_bytes=span_bytes)
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
    completions = {}
    # Readers that hold nothing look for room meanwhile.
    wait_until(lambda: engine.step() == [] and bool(client.reads))
    while not engine.is_idle:
        completions |= {done.request_id: done for done in engine.step()}
        client.deliver(1)
        saver.finish()
    report = saver.finish()
    saver.close()
    restorer.close()
    del completions[saved]
    assert [each.restore.restored_tokens for each in completions.values()] == [HISTORY_TOKENS] * 8
    assert report.dropped_tokens == 0
    assert client.regions_in_use == client.reads_in_flight == 0


def test_nothing_is_computed_while_all_wait(model: Model, prompt: list[int]) -> None:
    state_format = format_of(model, SCHEDULES["kv"])
    client = StreamedClient(stored(model, state_format, prompt))
    restorer = StateRestorer(client, state_format, model)
    log = StepLog()
    engine = Engine(
        model, cache_tokens=256, token_budget=16, requests_max=1, sink=log, restorer=restorer
    )
    engine.add_request(prompt, new_tokens_max=1, stop_token_ids=())
    (completion,) = engine.run()
    restorer.close()
    # It waited for each layer, and for no layer twice.
    assert client.waits == model.config.layer_count
    assert len(log.steps) == 1
    assert completion.computed_tokens == 3


@pytest.mark.parametrize("is_adaptive", [True, False])
def test_a_prefill_goes_before_a_restoration_or_in_order_of_arrival(
    is_adaptive: bool, model: Model, prompt: list[int], make_tokens: MakeTokens
) -> None:
    state_format = format_of(model, SCHEDULES["kv"])
    client = StreamedClient(stored(model, state_format, prompt[: 6 * CHUNK_TOKENS + 1]))
    restorer = CakeRestorer(
        client,
        state_format,
        model,
        compute=ComputeCost(step_s=1.0, token_s=1.0, attention_s=0.0),
        load=LoadCost(chunk_s=16.0),
        token_budget=16,
        opening_s_max=600.0,
        clock=lambda: client.now_s,
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
        clock=lambda: client.now_s,
    )
    restored = engine.add_request(prompt, new_tokens_max=2, stop_token_ids=())
    while not client.reads:
        engine.step()
        restoration = engine._running[restored].restoration
        assert isinstance(restoration, CakeRestoration)
        if restoration.plan is not None:
            wait_until(lambda: bool(client.reads))
    other = engine.add_request(make_tokens(100, 7), new_tokens_max=2, stop_token_ids=())
    first = len(log.steps)
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
    client = StreamedClient(stored(model, state_format, prompt))
    restorer = cake_restorer(client, state_format, model)
    log = StepLog()
    engine = Engine(
        model, cache_tokens=256, token_budget=16, requests_max=2, sink=log, restorer=restorer
    )
    other = engine.add_request(make_tokens(5, 2), new_tokens_max=60, stop_token_ids=())
    restored = engine.add_request(prompt, new_tokens_max=5, stop_token_ids=())
    run_until(engine, lambda: bool(client.reads))
    for _ in range(12):
        client.deliver(1)
        engine.step()
    completions = {done.request_id: done for done in engine.run()}
    restorer.close()
    assert completions[restored].restore.restored_tokens == HISTORY_TOKENS
    assert log.announced[restored] == HISTORY_TOKENS
    assert len(log.steps_of(other)) == 60


def test_a_step_without_tokens_takes_what_has_arrived(model: Model, prompt: list[int]) -> None:
    state_format = format_of(model, SCHEDULES["kv"])
    client = StreamedClient(stored(model, state_format, prompt))
    restorer = cake_restorer(client, state_format, model)
    log = StepLog()
    engine = Engine(
        model, cache_tokens=256, token_budget=16, requests_max=1, sink=log, restorer=restorer
    )
    engine.add_request(prompt, new_tokens_max=1, stop_token_ids=())
    for _ in range(STEPS_MAX):
        assert engine.step(token_budget=0) == []
        client.deliver(1)
        if engine._running and not next(iter(engine._running.values())).is_restoring:
            break
    assert log.steps == []
    (completion,) = engine.run()
    assert completion.restore.restored_tokens == HISTORY_TOKENS
    restorer.close()


def test_a_request_whose_loading_was_over_starved_behind_prefills(
    model: Model, make_tokens: MakeTokens
) -> None:
    log = StepLog()
    restoration = ScriptedRestoration(step_tokens=16, is_loading=True)
    engine = Engine(
        model,
        cache_tokens=512,
        token_budget=16,
        requests_max=2,
        sink=log,
        restorer=ScriptedRestorer(restoration),
    )
    restored = engine.add_request(make_tokens(100, 1), new_tokens_max=1)
    other = engine.add_request(make_tokens(100, 2), new_tokens_max=1)
    engine.step()
    restoration.is_loading = False
    engine.step()
    assert log.steps == [[(other, 16)], [(restored, 16)]]


def test_each_of_many_restorations_took_as_much_in_a_step_as_one_may(
    model: Model, make_tokens: MakeTokens
) -> None:
    restorations = [ScriptedRestoration(step_tokens=1, is_loading=True) for _ in range(4)]
    engine = Engine(model, cache_tokens=256, restorer=ScriptedRestorer(*restorations))
    for _ in restorations:
        engine.add_request(make_tokens(20, 1), new_tokens_max=1)
    engine.step()
    assert [each.pieces for each in restorations] == [[PIECE_TOKENS // 4]] * 4


@pytest.mark.parametrize(("count", "wait_s"), [(1, WAIT_S_MAX), (2, 0.005), (3, 0.005)])
def test_what_arrives_for_another_restoration_was_seen_late(
    count: int, wait_s: float, model: Model, make_tokens: MakeTokens
) -> None:
    restorations = [ScriptedRestoration(step_tokens=0, is_loading=True) for _ in range(count)]
    engine = Engine(model, cache_tokens=256, restorer=ScriptedRestorer(*restorations))
    for _ in restorations:
        engine.add_request(make_tokens(20, 1), new_tokens_max=1)
    engine.step()
    assert [wait for each in restorations for wait in each.waits_s] == [wait_s]
