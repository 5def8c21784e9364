"""New tokens are computed in the layers that their history has, while later layers come."""

import threading
from collections.abc import Callable

import pytest
import torch

from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import ComputeCost, LayerSchedule, Source
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion, Request
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import RestoreOptions, Way
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
CHUNKS = 6
HISTORY_TOKENS = CHUNKS * CHUNK_TOKENS
NEW_TOKENS = 20
BUDGET = 32
LAYERS = 3
TIMEOUT_S = 600.0
FORMATS = {
    "kv": (LayerSchedule.of((Source.KV, LAYERS)), "raw"),
    "hidden": (LayerSchedule.of((Source.HIDDEN, LAYERS)), "raw"),
    "both": (LayerSchedule.of((Source.HIDDEN, 1), (Source.KV, LAYERS - 1)), "raw"),
    "zstd": (LayerSchedule.of((Source.KV, LAYERS)), "zstd"),
}


class Lab:
    """One request with a stored history, whose layers come when a test says so."""

    def __init__(
        self, model: Model, name: str, prompt: list[int], *, span_chunks: int = CHUNKS
    ) -> None:
        schedule, codec = FORMATS[name]
        self.model = model
        self.prompt = prompt
        self.format = StateFormat.of_model(
            model, "layers", schedule=schedule, chunk_tokens=CHUNK_TOKENS
        ).encoded(codec)
        self.chunks: dict[bytes, StoredChunk] = {}
        saver = StateSaver(MemoryClient(make_store(self.chunks)), self.format)
        engine = Engine(model, cache_tokens=256, sink=saver)
        engine.add_request(prompt[: HISTORY_TOKENS + 1], new_tokens_max=1)
        engine.run()
        saver.close()
        self.client = MemoryClient(make_store(self.chunks))
        self.arrivals = Arrivals(self.client.store)
        self.clock = Clock()
        self.restorer = self.restorer_of(span_chunks)
        self.log = StepLog()

    def restorer_of(self, span_chunks: int) -> Restorer:
        options = RestoreOptions(
            way=Way.LAYERS,
            span_bytes=self.format.span_bytes(span_chunks),
            timeout_s=TIMEOUT_S,
            compute=ComputeCost(step_s=1.0, token_s=0.0, attention_s=0.0),
            clock=self.clock,
        )
        return Restorer(self.client, self.format, self.model, options)

    def engine(self, *, sink: StepLog | StateSaver | None = None, budget: int = BUDGET) -> Engine:
        return Engine(
            self.model,
            cache_tokens=512,
            token_budget=budget,
            requests_max=4,
            sink=sink or self.log,
            restorer=self.restorer,
            clock=self.clock,
        )

    @property
    def reader(self) -> SpanReader:
        (reader,) = (each for each in self.restorer._share.holders if each.is_running)
        assert isinstance(reader, SpanReader)
        return reader

    def step_until_reading(self, engine: Engine) -> Request:
        """Until the first layer was asked for; the request that is restored.

        From here on waiting brings nothing, until ``let_arrive``.
        """
        self.client.store.faults.on_wait = lambda _: is_engine()
        engine.step()
        wait_until(lambda: bool(self.client.store.reads and self.reader.spans))
        (request,) = (each for each in engine._running.values() if each.restoration is not None)
        return request

    def bring_layer(self) -> None:
        """The next one, as soon as it was asked for."""
        before = self.arrivals._count

        def has_come() -> bool:
            self.arrivals.deliver(1)
            return self.arrivals._count > before

        wait_until(has_come)

    def let_arrive(self) -> None:
        """Each wait of the engine brings a layer."""
        self.client.store.faults.on_wait = self.arrivals._let_one_arrive

    def check(self, completion: Completion, *, restored_tokens: int = HISTORY_TOKENS) -> None:
        """The tokens are those of a plain prefill, and each was restored or computed."""
        plain = Engine(self.model, cache_tokens=256)
        plain.add_request(self.prompt, new_tokens_max=4, stop_token_ids=())
        assert completion.error is None
        assert completion.token_ids == plain.run()[0].token_ids
        assert completion.restore.restored_tokens == restored_tokens
        assert completion.computed_tokens == len(self.prompt) + 3 - restored_tokens
        self.restorer.close()
        check_released(self.client.store)


@pytest.fixture
def prompt(make_tokens: MakeTokens) -> list[int]:
    return make_tokens(HISTORY_TOKENS + NEW_TOKENS, 1)


@pytest.fixture(params=FORMATS)
def lab(request: pytest.FixtureRequest, model: Model, prompt: list[int]) -> Lab:
    return Lab(model, request.param, prompt)


@pytest.fixture
def kv(model: Model, prompt: list[int]) -> Lab:
    return Lab(model, "kv", prompt)


def run(lab: Lab, engine: Engine) -> Completion:
    lab.let_arrive()
    (completion,) = engine.run()
    lab.restorer.close()
    return completion


def is_engine() -> bool:
    return threading.current_thread() is threading.main_thread()


def layers_of(request: Request) -> int:
    """Layers in which its new tokens were computed."""
    return 0 if request.prefill is None else request.prefill.next_layer


def step_until_layers(engine: Engine, request: Request, count: int) -> None:
    """Until its new tokens rest after so many layers."""
    wait_until(lambda: engine.step() == [] and layers_of(request) >= count)
    assert layers_of(request) == count


def test_a_layer_is_computed_before_the_next_one_has_come(lab: Lab) -> None:
    engine = lab.engine()
    engine.add_request(lab.prompt, new_tokens_max=4, stop_token_ids=())
    request = lab.step_until_reading(engine)
    assert layers_of(request) == 0
    for layer in range(LAYERS - 1):
        lab.bring_layer()
        step_until_layers(engine, request, layer + 1)
        assert request.open_layers is not None
        assert request.open_layers.layers == layer + 1
    assert lab.log.steps == []
    completion = run(lab, engine)
    # The sink saw the new tokens as one step, then those that were generated.
    assert [tokens for ((_, tokens),) in lab.log.steps] == [NEW_TOKENS, 1, 1, 1]
    assert lab.log.announced == {0: HISTORY_TOKENS}
    lab.check(completion)


@pytest.mark.parametrize("span_chunks", [1, 2, 4])
def test_a_history_that_is_larger_than_the_arena_comes_in_bands(
    span_chunks: int, model: Model, prompt: list[int]
) -> None:
    lab = Lab(model, "kv", prompt, span_chunks=span_chunks)
    engine = lab.engine()
    engine.add_request(lab.prompt, new_tokens_max=4, stop_token_ids=())
    lab.check(run(lab, engine))


def test_others_wait_at_no_gate(kv: Lab, make_tokens: MakeTokens) -> None:
    """Neither where it is closed nor where new tokens rest before it."""
    engine = kv.engine()
    other = engine.add_request(make_tokens(5, 2), new_tokens_max=60, stop_token_ids=())
    engine.step()
    # It takes part in steps as soon as it is known that nothing of it is stored.
    restored = engine.add_request(kv.prompt, new_tokens_max=4, stop_token_ids=())
    engine.step()
    wait_until(lambda: bool(kv.client.store.reads and kv.reader.spans))
    before = len(kv.log.steps_of(other))
    for _ in range(5):
        engine.step()
    kv.arrivals.deliver(1)
    for _ in range(5):
        engine.step()
    assert layers_of(engine._running[restored]) == 1
    assert len(kv.log.steps_of(other)) == before + 10
    assert kv.log.steps_of(restored) == []
    assert kv.arrivals.waits == 0
    completions: dict[int, Completion] = {}
    while not engine.is_idle:
        kv.arrivals.deliver(1)
        completions |= {done.request_id: done for done in engine.step()}
    assert completions[other].error is None
    kv.check(completions[restored])


def test_new_tokens_take_what_others_leave_of_a_step(kv: Lab, make_tokens: MakeTokens) -> None:
    """A step computes no more tokens times layers than it has, but one layer in any case."""
    engine = kv.engine()
    engine.add_request(kv.prompt, new_tokens_max=4, stop_token_ids=())
    request = kv.step_until_reading(engine)
    kv.bring_layer()
    step_until_layers(engine, request, 1)
    other = engine.add_request(make_tokens(4 * BUDGET, 2), new_tokens_max=2, stop_token_ids=())
    # Its reader says on a thread that nothing is stored.
    wait_until(lambda: engine.step() == [] and bool(kv.log.steps_of(other)))
    assert layers_of(request) == 1
    kv.arrivals.deliver(LAYERS)
    before = len(kv.log.steps_of(other))
    engine.step()
    assert kv.log.steps[-1] == [(other, BUDGET)]
    assert (layers_of(request), len(kv.log.steps_of(other))) == (2, before + 1)
    kv.let_arrive()
    completions = {done.request_id: done for done in engine.run()}
    kv.check(completions[request.request_id])


def test_more_new_tokens_than_a_step_has_follow_as_any_others(kv: Lab) -> None:
    engine = kv.engine(budget=16)
    engine.add_request(kv.prompt, new_tokens_max=4, stop_token_ids=())
    completion = run(kv, engine)
    assert [tokens for ((_, tokens),) in kv.log.steps] == [16, NEW_TOKENS - 16, 1, 1, 1]
    kv.check(completion)


@pytest.mark.parametrize("lost_layer", range(LAYERS))
@pytest.mark.parametrize("lost_chunk", [0, 3])
def test_new_tokens_start_over_where_a_chunk_of_their_history_is_lost(
    lab: Lab, lost_layer: int, lost_chunk: int
) -> None:
    keys = lab.client.prefix_keys(lab.format.layout, lab.prompt)
    lab.client.store.faults.lost_slices = {(keys[lost_chunk], lost_layer)}
    engine = lab.engine()
    engine.add_request(lab.prompt, new_tokens_max=4, stop_token_ids=())
    completion = run(lab, engine)
    lab.check(completion, restored_tokens=lost_chunk * CHUNK_TOKENS)


@pytest.mark.parametrize("layers", range(LAYERS))
def test_a_store_that_dies_costs_the_history_only(kv: Lab, layers: int) -> None:
    kv.arrivals.dies_after = layers
    engine = kv.engine()
    engine.add_request(kv.prompt, new_tokens_max=4, stop_token_ids=())
    completion = run(kv, engine)
    kv.check(completion, restored_tokens=0)


def test_a_silent_store_was_waited_for_as_long_as_computing_everything_takes(kv: Lab) -> None:
    """Bug: the stake of 4 % did not count, because no token is whole before the last layer."""
    engine = kv.engine()
    engine.add_request(kv.prompt, new_tokens_max=4, stop_token_ids=())
    request = kv.step_until_reading(engine)
    kv.bring_layer()
    step_until_layers(engine, request, 1)
    assert request.restoration is not None
    request.restoration.advance(BUDGET)
    # A step takes a second.
    kv.clock.advance(0.039)
    engine.step()
    assert request.restore is None
    kv.clock.advance(0.002)
    engine.step()
    assert request.restore is not None
    kv.check(run(kv, engine), restored_tokens=0)


def test_new_tokens_are_saved_as_any_others(model: Model, prompt: list[int]) -> None:
    lab = Lab(model, "kv", prompt)
    saver = StateSaver(lab.client, lab.format)
    engine = lab.engine(sink=saver)
    engine.add_request(prompt, new_tokens_max=4, stop_token_ids=())
    completion = run(lab, engine)
    report = saver.finish()
    saver.close()
    assert report.dropped_tokens == 0
    keys = lab.client.prefix_keys(lab.format.layout, completion.token_ids[:-1])
    whole = Lab(model, "kv", [*prompt, 0])
    assert set(keys[CHUNKS:]) <= set(lab.client.store.chunks)
    plain = StateSaver(whole.client, whole.format)
    computing = Engine(model, cache_tokens=256, sink=plain)
    computing.add_request(prompt, new_tokens_max=4, stop_token_ids=())
    computing.run()
    plain.close()
    for key in keys[CHUNKS:]:
        for ours, computed in zip(
            lab.client.store.chunks[key].slices, whole.client.store.chunks[key].slices, strict=True
        ):
            one, other = (
                torch.frombuffer(bytearray(each), dtype=torch.float32) for each in (ours, computed)
            )
            assert (one - other).abs().max() < 1e-4
    lab.check(completion)


def test_only_its_request_ends_where_new_tokens_cannot_be_computed(
    kv: Lab, make_tokens: MakeTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = kv.engine()
    failing = engine.add_request(kv.prompt, new_tokens_max=4, stop_token_ids=())
    kv.step_until_reading(engine)
    other = engine.add_request(make_tokens(5, 2), new_tokens_max=4, stop_token_ids=())

    begin = kv.model.begin_pass

    def fail_once(token_ids: list[int], *arguments: object, **options: object) -> object:
        if len(token_ids) == NEW_TOKENS:
            raise RuntimeError("no memory")
        return begin(token_ids, *arguments, **options)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(kv.model, "begin_pass", fail_once)
    completions: dict[int, Completion] = {}
    while not engine.is_idle:
        kv.arrivals.deliver(1)
        completions |= {done.request_id: done for done in engine.step()}
    assert completions[failing].error is not None
    assert completions[other].error is None
    kv.restorer.close()
    check_released(kv.client.store)


def test_layers_that_are_not_stored_cannot_come(model: Model) -> None:
    schedule = LayerSchedule.of((Source.COMPUTE, 1), (Source.KV, LAYERS - 1))
    state_format = StateFormat.of_model(model, "none", schedule=schedule)
    with pytest.raises(ValueError, match="1 layers of this layout are not stored"):
        Restorer(MemoryClient(make_store()), state_format, model, RestoreOptions(way=Way.LAYERS))
