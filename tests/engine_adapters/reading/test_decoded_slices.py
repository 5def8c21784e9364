"""What a span of encoded slices shows, and when its thread ends."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch

from engine_adapters.reading.decoded_slices import THREAD_NAME, DecodedSlices, _Slice
from engine_adapters.reading.piece import pieces_of
from engine_adapters.reading.span import Span
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Order, SliceState
from kvstored_client.testing import MemoryClient
from tests.engine_adapters.runner.arrivals import Arrivals, garbled
from tests.engine_adapters.runner.memory import check_released, make_store
from tests.engine_adapters.runner.restored import restored
from tests.support.waiting import wait_until

CHUNK_TOKENS = 8
CHUNKS = 5
EXACT = 1e-4
MakeTokens = Callable[[int, int], list[int]]


@pytest.fixture
def raw_format(model: Model) -> StateFormat:
    """Two sections, so two reads for each span."""
    layers = model.config.layer_count
    schedule = LayerSchedule.of((Source.HIDDEN, 1), (Source.KV, layers - 1))
    return StateFormat.of_model(model, "spans", schedule=schedule, chunk_tokens=CHUNK_TOKENS)


@pytest.fixture
def state_format(raw_format: StateFormat) -> StateFormat:
    return raw_format.encoded("zstd")


@pytest.fixture
def prompt(make_tokens: MakeTokens) -> list[int]:
    return make_tokens(CHUNKS * CHUNK_TOKENS + 1, 1)


def computed(model: Model, prompt: list[int], *, saver: StateSaver | None = None) -> Engine:
    engine = Engine(model, cache_tokens=128, sink=saver, requests_max=1)
    engine.add_request(prompt, new_tokens_max=1)
    engine.run()
    return engine


@pytest.fixture
def client(model: Model, state_format: StateFormat, prompt: list[int]) -> Iterator[MemoryClient]:
    """Of a store that has the prompt."""
    with MemoryClient(make_store()) as client:
        saver = StateSaver(client, state_format)
        computed(model, prompt, saver=saver)
        saver.close()
        yield client


@pytest.fixture
def arrivals(client: MemoryClient) -> Arrivals:
    return Arrivals(client.store)


def opened(
    client: MemoryClient,
    state_format: StateFormat,
    prompt: list[int],
    *,
    order: Order = Order.LAYER_FIRST,
) -> Span:
    region = client.allocate(state_format.span_bytes(CHUNKS))
    assert region is not None
    keys = client.prefix_keys(state_format.layout, prompt)[:CHUNKS]
    pieces = pieces_of(keys, chunk_tokens=CHUNK_TOKENS)
    return Span(client, state_format, region, pieces=pieces, first_chunk=0, order=order)


def is_there(span: Span, chunk: int) -> bool:
    return span.state(chunk) is SliceState.RESIDENT


def start_all(span: Span) -> None:
    while not span.reads.are_all_started:
        span.reads.start(1000)


def decoders() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == THREAD_NAME]


def test_a_layout_without_a_codec_has_no_thread(
    client: MemoryClient, raw_format: StateFormat, prompt: list[int]
) -> None:
    span = opened(client, raw_format, prompt)
    assert decoders() == []
    span.release()


@pytest.mark.parametrize("order", list(Order))
def test_states_are_those_that_were_computed(
    client: MemoryClient,
    arrivals: Arrivals,
    state_format: StateFormat,
    model: Model,
    prompt: list[int],
    order: Order,
) -> None:
    span = opened(client, state_format, prompt, order=order)
    assert not span.is_layer_settled(0)
    assert span.wait_layer(0, 0.0) == 0
    start_all(span)
    assert not any(is_there(span, chunk) for chunk in range(CHUNKS))
    arrivals.deliver(1000)
    wait_until(lambda: all(is_there(span, chunk) for chunk in range(CHUNKS)))
    values = computed(model, prompt)._cache.values
    for layer in range(1, model.config.layer_count):
        assert span.wait_layer(layer, 0.0) == CHUNKS
        states = span.states(layer, 3, first_chunk=2)
        wanted = values[layer, 2 * CHUNK_TOKENS : CHUNKS * CHUNK_TOKENS]
        assert torch.equal(states[:, 1].reshape(wanted.shape), wanted)
    wait_until(lambda: span.is_finished)
    span.release()
    check_released(client.store)


def test_what_is_no_payload_is_missing(
    client: MemoryClient,
    arrivals: Arrivals,
    state_format: StateFormat,
    prompt: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = client.prefix_keys(state_format.layout, prompt)[3]
    client.store.chunks[key] = garbled(client.store.chunks[key])
    span = opened(client, state_format, prompt)
    start_all(span)
    arrivals.deliver(1000)
    wait_until(lambda: span.is_finished)
    assert [span.is_lost(chunk) for chunk in range(CHUNKS)] == [False, False, False, True, False]
    assert [is_there(span, chunk) for chunk in range(CHUNKS)] == [True, True, True, False, True]
    assert span.is_layer_settled(1)
    assert span.wait_layer(1, 0.0) == 3
    assert [span.is_lost(chunk) for chunk in range(4)] == [False] * 3 + [True]
    assert "is computed again" in caplog.text
    span.release()


def test_a_wait_ends_when_it_is_decoded(
    client: MemoryClient, arrivals: Arrivals, state_format: StateFormat, prompt: list[int]
) -> None:
    span = opened(client, state_format, prompt, order=Order.TAIL_FIRST)
    start_all(span)
    arrivals.deliver(1000)
    for chunk in reversed(range(CHUNKS)):
        span.wait(chunk, timeout_s=60.0)
        assert is_there(span, chunk)
    span.release()


def test_what_was_reached_is_not_decoded(
    client: MemoryClient, arrivals: Arrivals, state_format: StateFormat, prompt: list[int]
) -> None:
    span = opened(client, state_format, prompt, order=Order.TAIL_FIRST)
    span.reads.reach(2)
    start_all(span)
    arrivals.deliver(1000)
    wait_until(lambda: span.is_finished)
    assert [is_there(span, chunk) for chunk in range(CHUNKS)] == [False, False, True, True, True]
    span.release()


@pytest.mark.parametrize("sections", [0, 1, 2])
def test_a_release_does_not_wait_for_what_never_comes(
    client: MemoryClient,
    arrivals: Arrivals,
    state_format: StateFormat,
    prompt: list[int],
    sections: int,
) -> None:
    span = opened(client, state_format, prompt)
    for _ in range(sections):
        span.reads.start(1000)
    assert not span.is_finished
    span.release()
    assert decoders() == []
    assert client.store.regions_in_use == 0


def test_what_was_never_asked_for_is_lost(
    client: MemoryClient, arrivals: Arrivals, state_format: StateFormat, prompt: list[int]
) -> None:
    span = opened(client, state_format, prompt)
    span.reads.start(1000)
    span.reads.give_up()
    arrivals.deliver(1000)
    wait_until(partial(span.is_layer_settled, 1))
    assert span.wait_layer(0, 0.0) == CHUNKS
    assert span.wait_layer(1, 0.0) == 0
    assert span.is_lost(0)
    assert all(map(span.is_lost, range(CHUNKS)))
    span.release()


def test_nothing_of_a_lost_session_is_used(
    client: MemoryClient, arrivals: Arrivals, state_format: StateFormat, prompt: list[int]
) -> None:
    span = opened(client, state_format, prompt)
    start_all(span)
    arrivals.deliver(1000)
    wait_until(partial(span.is_layer_settled, 0))
    client.store.kill()
    assert span.wait_layer(0, 0.0) == 0
    span.release()


def test_a_fault_of_the_thread_is_a_miss(
    client: MemoryClient,
    arrivals: Arrivals,
    state_format: StateFormat,
    prompt: list[int],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(DecodedSlices, "_decode", fail)
    span = opened(client, state_format, prompt)
    start_all(span)
    arrivals.deliver(1000)
    wait_until(lambda: all(map(span.is_layer_settled, range(3))))
    assert all(map(span.is_lost, range(CHUNKS)))
    assert "decoding a history failed" in caplog.text
    span.release()


@pytest.mark.parametrize("waits", [False, True])
def test_a_history_comes_back_layer_by_layer(
    model: Model, state_format: StateFormat, prompt: list[int], client: MemoryClient, waits: bool
) -> None:
    """Through both ways of restoring a prefix: all at once, and between steps."""
    restorer = Restorer(client, state_format, model, RestoreOptions(span_tokens=2 * CHUNK_TOKENS))
    wanted = computed(model, prompt)
    if waits:
        cache = model.make_cache(len(prompt))
        report = restored(restorer, prompt, cache=cache, first_slot=0)
    else:
        engine = Engine(model, cache_tokens=128, requests_max=1, restorer=restorer)
        engine.add_request(prompt, new_tokens_max=1)
        (completion,) = engine.run()
        cache, report = engine._cache, completion.restore
    restorer.close()
    assert report.restored_tokens == CHUNKS * CHUNK_TOKENS
    for ours, theirs in ((cache.keys, wanted._cache.keys), (cache.values, wanted._cache.values)):
        difference = ours[:, : len(prompt) - 1] - theirs[:, : len(prompt) - 1]
        assert difference.abs().max() < EXACT
    check_released(client.store)
    assert decoders() == []


def test_a_chunk_was_not_lost_yet_when_a_slice_of_it_was(
    client: MemoryClient, state_format: StateFormat, prompt: list[int], arrivals: Arrivals
) -> None:
    """Bug: between both, who asked without the lock took bytes that were not decoded."""
    span = opened(client, state_format, prompt)
    slices = span._slices
    assert isinstance(slices, DecodedSlices)
    seen: list[SliceState] = []

    class Lost(set[int]):
        def add(self, chunk: int) -> None:
            seen.append(slices.state(chunk, 0))
            super().add(chunk)

    slices._lost_chunks = Lost()
    slices._note(0, 2, _Slice.MISSING)
    assert seen == [SliceState.PENDING]
    assert slices.state(2) is SliceState.MISSING
    span.reads.give_up()
    span.release()
