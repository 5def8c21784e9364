"""Who releases a region when: never while a read may still land in it."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.arena_share import ArenaShare
from engine_adapters.runner.engine import Engine
from engine_adapters.runner.model import Model
from engine_adapters.runner.restorer import StateRestorer
from engine_adapters.runner.saver import StateSaver
from engine_adapters.runner.span_reader import SpanReader
from engine_adapters.runner.state_format import StateFormat
from kvstored_client import Order, Region
from tests.engine_adapters.runner.fake_client import FakeClient, FakeStore
from tests.engine_adapters.runner.streamed_client import StreamedClient, StreamedRead
from tests.support.waiting import wait_until

CHUNK_TOKENS = 8
CHUNKS = 6
MakeTokens = Callable[[int, int], list[int]]


class SectionClient(StreamedClient):
    """``before_section`` is called with a read's number, before the daemon hears of it.

    ``refusals`` counts how often there was no room.
    """

    def __init__(self, store: FakeStore, **options: Any) -> None:
        super().__init__(store, **options)
        self.before_section: Callable[[int], None] = lambda number: None
        self.refusals = 0

    def allocate(self, byte_count: int, *, connects: bool = True) -> Region | None:
        region = super().allocate(byte_count, connects=connects)
        self.refusals += region is None
        return region

    def read(self, *arguments: Any, **options: Any) -> StreamedRead:
        self.before_section(len(self.reads))
        return super().read(*arguments, **options)


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
def client(model: Model, state_format: StateFormat, prompt: list[int]) -> SectionClient:
    plain = FakeClient(FakeStore())
    saver = StateSaver(plain, state_format)
    engine = Engine(model, cache_tokens=128, sink=saver)
    engine.add_request(prompt, new_tokens_max=1)
    engine.run()
    saver.close()
    return SectionClient(plain.store)


def reader_of(
    client: SectionClient,
    state_format: StateFormat,
    prompt: list[int],
    *,
    timeout_s: float = 600.0,
) -> SpanReader:
    reader = SpanReader(
        client,
        state_format,
        ArenaShare.of_client(client),
        prompt[:-1],
        order=Order.LAYER_FIRST,
        span_chunks=CHUNKS,
        timeout_s=timeout_s,
    )
    reader.load([range(CHUNKS)])
    return reader


def test_a_region_was_released_while_the_read_of_its_next_section_was_being_started(
    client: SectionClient, state_format: StateFormat, prompt: list[int]
) -> None:
    is_starting, goes_on = threading.Event(), threading.Event()

    def hold_up(number: int) -> None:
        if number == 1:
            is_starting.set()
            assert goes_on.wait(30.0)

    client.before_section = hold_up
    reader = reader_of(client, state_format, prompt)
    wait_until(lambda: len(client.reads) == 1)
    client.deliver(1)
    assert is_starting.wait(30.0)
    (span,) = reader.spans
    reader.give_back(span)
    regions_in_use = client.regions_in_use
    goes_on.set()
    reader.join()
    assert regions_in_use == 1
    assert len(client.reads) == 2
    assert client.regions_in_use == client.reads_in_flight == 0


def test_what_is_given_back_is_released_while_another_span_is_used(
    client: SectionClient, state_format: StateFormat, prompt: list[int]
) -> None:
    reader = SpanReader(
        client,
        state_format,
        ArenaShare.of_client(client),
        prompt[:-1],
        order=Order.LAYER_FIRST,
        span_chunks=CHUNKS // 2,
        timeout_s=30.0,
    )
    reader.load([range(CHUNKS)])

    def has_read_all() -> bool:
        client.deliver(1)
        return reader.is_ended

    wait_until(has_read_all)
    first, last = reader.spans
    reader.give_back(last)
    wait_until(lambda: client.regions_in_use == 1)
    assert reader.spans == (first,)
    reader.close()
    reader.join()
    assert client.regions_in_use == client.reads_in_flight == 0


def fail_at(bad_number: int) -> Callable[[int], None]:
    def fail(number: int) -> None:
        if number == bad_number:
            raise RuntimeError("a bug")

    return fail


def test_a_first_read_that_cannot_be_started_left_its_region_behind(
    client: SectionClient, state_format: StateFormat, prompt: list[int]
) -> None:
    client.before_section = fail_at(0)
    reader = reader_of(client, state_format, prompt)
    reader.join()
    assert reader.spans == ()
    assert client.regions_in_use == client.reads_in_flight == 0


def test_a_later_read_that_cannot_be_started_was_waited_for(
    client: SectionClient, state_format: StateFormat, prompt: list[int], model: Model
) -> None:
    """The clock stands still, so that no wait ever ends by itself."""
    client.before_section = fail_at(1)
    restorer = StateRestorer(client, state_format, model, clock=lambda: 0.0)
    engine = Engine(model, cache_tokens=128, restorer=restorer)
    engine.add_request(prompt, new_tokens_max=1)
    wait_until(lambda: bool(engine.step()))
    restorer.close()
    assert client.regions_in_use == client.reads_in_flight == 0


def fill(client: SectionClient) -> Region:
    """Takes the whole arena, as snapshots of steps may."""
    region = client.allocate(client.region_bytes_max)
    assert region is not None
    return region


def test_a_reader_that_held_nothing_and_found_no_room_ended_for_good(
    client: SectionClient, state_format: StateFormat, prompt: list[int]
) -> None:
    snapshot = fill(client)
    reader = reader_of(client, state_format, prompt)
    wait_until(lambda: client.refusals > CHUNKS or reader.is_ended)
    snapshot.release()
    wait_until(lambda: bool(client.reads) or reader.is_ended)
    assert client.reads
    reader.close()
    reader.join()
    assert client.regions_in_use == client.reads_in_flight == 0


def test_a_reader_waits_for_room_until_its_deadline(
    client: SectionClient, state_format: StateFormat, prompt: list[int]
) -> None:
    snapshot = fill(client)
    reader = reader_of(client, state_format, prompt, timeout_s=0.05)
    reader.join()
    assert client.reads == []
    snapshot.release()


def test_a_closed_reader_waits_for_no_room(
    client: SectionClient, state_format: StateFormat, prompt: list[int]
) -> None:
    snapshot = fill(client)
    reader = reader_of(client, state_format, prompt)
    wait_until(lambda: client.refusals > 0)
    reader.close()
    reader.join()
    snapshot.release()


def test_nobody_waits_for_room_in_an_arena_that_is_too_small_or_lost(
    client: SectionClient, state_format: StateFormat, prompt: list[int]
) -> None:
    small = SectionClient(client.store, arena_bytes=state_format.span_bytes(1) - 1)
    reader_of(small, state_format, prompt).join()
    snapshot = fill(client)
    reader = reader_of(client, state_format, prompt)
    wait_until(lambda: client.refusals > 0)
    client.alive = False
    reader.join()
    assert small.reads == client.reads == []
    snapshot.release()
