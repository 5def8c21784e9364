"""Who releases a region when: never while a read may still land in it."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine_adapters.reading.arena_share import ArenaShare
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import pinned
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Order, Read, Region
from kvstored_client.testing import MemoryClient
from tests.engine_adapters.runner.arrivals import Arrivals
from tests.engine_adapters.runner.memory import check_released, make_store
from tests.support.waiting import wait_until

CHUNK_TOKENS = 8
CHUNKS = 6
MakeTokens = Callable[[int, int], list[int]]


def before_section(client: MemoryClient, action: Callable[[int], None]) -> None:
    """Acts with a read's number before the call, in which a fault would end the session."""
    read = client.read

    def act_and_read(*arguments: Any, **options: Any) -> Read:
        action(len(client.store.reads))
        return read(*arguments, **options)

    client.read = act_and_read  # type: ignore[method-assign]


def refusals(client: MemoryClient) -> int:
    """How often there was no room."""
    return client.counters.get("allocate_failed", 0)


@pytest.fixture
def state_format(model: Model) -> StateFormat:
    """Two sections, so two reads for each span."""
    layers = model.config.layer_count
    schedule = LayerSchedule.of((Source.HIDDEN, 1), (Source.KV, layers - 1))
    return StateFormat.of_model(model, "spans", schedule=schedule, chunk_tokens=CHUNK_TOKENS)


@pytest.fixture
def prompt(make_tokens: MakeTokens) -> list[int]:
    return make_tokens(CHUNKS * CHUNK_TOKENS + 1, 1)


@pytest.fixture
def client(model: Model, state_format: StateFormat, prompt: list[int]) -> Iterator[MemoryClient]:
    """Of a store that has the prompt."""
    with MemoryClient(make_store()) as client:
        save(client, model, state_format, prompt)
        yield client


@pytest.fixture
def arrivals(client: MemoryClient) -> Arrivals:
    return Arrivals(client.store)


def save(client: MemoryClient, model: Model, state_format: StateFormat, prompt: list[int]) -> None:
    saver = StateSaver(client, state_format)
    engine = Engine(model, cache_tokens=128, sink=saver)
    engine.add_request(prompt, new_tokens_max=1)
    engine.run()
    saver.close()


def reader_of(
    client: MemoryClient,
    state_format: StateFormat,
    prompt: list[int],
    *,
    timeout_s: float = 600.0,
    span_chunks: int = CHUNKS,
) -> SpanReader:
    lease_ms = int(timeout_s * 1000)
    reader = SpanReader(
        client,
        state_format,
        pinned(client, state_format.layout, prompt[:-1], lease_ms=lease_ms),
        ReadOptions(order=Order.LAYER_FIRST, span_chunks=span_chunks, reads_prefix=False),
        remaining_s=lambda: timeout_s,
        share=ArenaShare.of_client(client),
    )
    reader.load([range(CHUNKS)])
    return reader.start(room_timeout_s=timeout_s)


def test_a_region_was_released_while_the_read_of_its_next_section_was_being_started(
    client: MemoryClient, arrivals: Arrivals, state_format: StateFormat, prompt: list[int]
) -> None:
    is_starting, goes_on = threading.Event(), threading.Event()

    def hold_up(number: int) -> None:
        if number == 1:
            is_starting.set()
            assert goes_on.wait(30.0)

    before_section(client, hold_up)
    reader = reader_of(client, state_format, prompt)
    wait_until(lambda: len(client.store.reads) == 1)
    arrivals.deliver(1)
    assert is_starting.wait(30.0)
    (span,) = reader.spans
    reader.give_back(span)
    regions_in_use = client.store.regions_in_use
    goes_on.set()
    reader.join()
    assert regions_in_use == 1
    assert len(client.store.reads) == 2
    check_released(client.store)


def test_what_is_given_back_is_released_while_another_span_is_used(
    client: MemoryClient, arrivals: Arrivals, state_format: StateFormat, prompt: list[int]
) -> None:
    reader = reader_of(client, state_format, prompt, timeout_s=30.0, span_chunks=CHUNKS // 2)

    def has_read_all() -> bool:
        arrivals.deliver(1)
        return reader.is_ended

    wait_until(has_read_all)
    first, last = reader.spans
    reader.give_back(last)
    wait_until(lambda: client.store.regions_in_use == 1)
    assert reader.spans == (first,)
    reader.close()
    reader.join()
    check_released(client.store)


def fail_at(bad_number: int) -> Callable[[int], None]:
    def fail(number: int) -> None:
        if number == bad_number:
            raise RuntimeError("a bug")

    return fail


def test_a_first_read_that_cannot_be_started_left_its_region_behind(
    client: MemoryClient, arrivals: Arrivals, state_format: StateFormat, prompt: list[int]
) -> None:
    before_section(client, fail_at(0))
    reader = reader_of(client, state_format, prompt)
    reader.join()
    assert reader.spans == ()
    check_released(client.store)


def test_a_later_read_that_cannot_be_started_was_waited_for(
    client: MemoryClient,
    arrivals: Arrivals,
    state_format: StateFormat,
    prompt: list[int],
    model: Model,
) -> None:
    """The clock stands still, so that no wait ever ends by itself."""
    before_section(client, fail_at(1))
    restorer = Restorer(client, state_format, model, RestoreOptions(clock=lambda: 0.0))
    engine = Engine(model, cache_tokens=128, restorer=restorer)
    engine.add_request(prompt, new_tokens_max=1)
    wait_until(lambda: bool(engine.step()))
    restorer.close()
    check_released(client.store)


def fill(client: MemoryClient) -> Region:
    """Takes the whole arena, as snapshots of steps may."""
    region = client.allocate(client.region_bytes_max)
    assert region is not None
    return region


def test_a_reader_that_held_nothing_and_found_no_room_ended_for_good(
    client: MemoryClient, arrivals: Arrivals, state_format: StateFormat, prompt: list[int]
) -> None:
    snapshot = fill(client)
    reader = reader_of(client, state_format, prompt)
    wait_until(lambda: refusals(client) > CHUNKS or reader.is_ended)
    snapshot.release()
    wait_until(lambda: bool(client.store.reads) or reader.is_ended)
    assert client.store.reads
    reader.close()
    reader.join()
    check_released(client.store)


def test_a_reader_waits_for_room_until_its_deadline(
    client: MemoryClient, arrivals: Arrivals, state_format: StateFormat, prompt: list[int]
) -> None:
    snapshot = fill(client)
    reader = reader_of(client, state_format, prompt, timeout_s=0.05)
    reader.join()
    assert client.store.reads == []
    snapshot.release()


def test_a_closed_reader_waits_for_no_room(
    client: MemoryClient, arrivals: Arrivals, state_format: StateFormat, prompt: list[int]
) -> None:
    snapshot = fill(client)
    reader = reader_of(client, state_format, prompt)
    wait_until(lambda: refusals(client) > 0)
    reader.close()
    reader.join()
    snapshot.release()


def test_nobody_waits_for_room_in_an_arena_that_is_too_small_or_lost(
    client: MemoryClient, arrivals: Arrivals, state_format: StateFormat, prompt: list[int]
) -> None:
    small = MemoryClient(client.store, room_bytes=state_format.span_bytes(1) - 1)
    reader_of(small, state_format, prompt).join()
    snapshot = fill(client)
    reader = reader_of(client, state_format, prompt)
    wait_until(lambda: refusals(client) > 0)
    client.store.kill()
    reader.join()
    assert client.store.reads == []
    snapshot.release()
