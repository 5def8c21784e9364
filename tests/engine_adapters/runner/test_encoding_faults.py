"""Saving with a codec when something fails: no chunk holds the states of other tokens."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from torch import Tensor

from engine_adapters.reading.piece import pieces_of
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.read_policy import ReadPolicy
from engine_adapters.reading.span_opener import SpanOpener
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.save.encoding_queue import EncodingQueue, OpenChunk
from engine_adapters.runner.save.save_queue import SaveReport
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from engine_adapters.runner.turn import ARENA_SPANS, arena_bytes_of
from kvstored_client import (
    Order,
    PutOutcome,
    PutReport,
    PutResult,
    Reason,
    SnapshotGeometry,
)
from kvstored_client.testing import MemoryClient
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.memory import make_store
from tests.engine_adapters.runner.save.test_encoding_queue import SCHEDULE, check_chunk, step

MakeTokens = Callable[[int, int], list[int]]


@pytest.fixture
def states(model: Model) -> StateFormat:
    states = StateFormat.of_model(model, "encoded", schedule=SCHEDULE, chunk_tokens=CHUNK_TOKENS)
    return states.encoded("zstd")


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    with MemoryClient(make_store()) as client:
        yield client


@pytest.fixture
def saver(client: MemoryClient, states: StateFormat) -> Iterator[StateSaver]:
    saver = StateSaver(client, states)
    yield saver
    saver.close()
    assert client.store.regions_in_use == 0


def queue_of(saver: StateSaver) -> EncodingQueue:
    assert isinstance(saver._queue, EncodingQueue)
    return saver._queue


def test_a_failed_encoding_leaves_no_gap_in_its_sequence(
    client: MemoryClient, saver: StateSaver, states: StateFormat, make_tokens: MakeTokens
) -> None:
    """Bug: the rows of the next step were laid into the chunk that could not be encoded."""
    queue = queue_of(saver)
    codec, failures = queue._codec, [MemoryError("no room")]

    class Failing:
        def __getattr__(self, name: str) -> object:
            return getattr(codec, name)

        def encode(self, slices: tuple[Tensor | None, ...]) -> tuple[bytes, ...]:
            if failures:
                raise failures.pop()
            return codec.encode(slices)

    tokens = make_tokens(80, 1)
    queue._codec = Failing()  # type: ignore[assignment]
    saver.begin_request(0, tokens, 0)
    step(saver, (0, 0, 12))
    for first in range(12, 60, 12):
        step(saver, (0, first, 12))
    saver.begin_request(1, tokens, 0)
    step(saver, (1, 0, 16))
    for request_id in (0, 1):
        saver.end_request(request_id)
    assert saver.finish() == SaveReport(saved_tokens=16, dropped_tokens=60)
    keys = client.prefix_keys(states.layout, tokens)
    assert set(client.store.chunks) == set(keys[:2])
    for index in range(2):
        check_chunk(client, states, keys[index], index * CHUNK_TOKENS + 1000)


def test_a_step_that_fails_stops_all_of_its_sequences(
    client: MemoryClient,
    saver: StateSaver,
    make_tokens: MakeTokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: sequences behind the one that failed went on without the rows of that step."""
    add, calls = OpenChunk.add, []

    def failing(self: OpenChunk, *arguments: object) -> int:
        calls.append(1)
        if len(calls) == 1:
            raise MemoryError("no room")
        return add(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(OpenChunk, "add", failing)
    for request_id in (0, 1):
        saver.begin_request(request_id, make_tokens(80, request_id), 0)
    step(saver, (0, 0, 4), (1, 0, 4))
    step(saver, (0, 4, 12), (1, 4, 12))
    for request_id in (0, 1):
        saver.end_request(request_id)
    assert saver.finish() == SaveReport(dropped_tokens=32)
    assert client.store.chunks == {}


def test_a_tail_that_cannot_be_encoded_was_in_no_count(
    client: MemoryClient,
    states: StateFormat,
    make_tokens: MakeTokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: it was neither saved nor dropped."""

    def fail(*arguments: object) -> None:
        raise MemoryError("no room")

    saver = StateSaver(client, states)
    saver.begin_conversation(
        0, "an entry", make_tokens(11, 1), (), 0, is_tail_stored=False, keeps_tail=True
    )
    step(saver, (0, 0, 11))
    saver.finish()
    monkeypatch.setattr(EncodingQueue, "_encode", fail)
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=8, dropped_tokens=3)
    saver.close()


def test_rows_behind_a_gap_are_not_saved(
    client: MemoryClient, states: StateFormat, make_tokens: MakeTokens
) -> None:
    saver = StateSaver(client, states)
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (0, 0, 4))
    saver._sequences[0].next_token = 8
    step(saver, (0, 8, 12))
    saver.end_request(0)
    assert saver.finish() == SaveReport(dropped_tokens=4 + 12)
    assert client.store.chunks == {}
    saver.close()


def test_a_chunk_that_is_lost_with_its_region_counts_once(
    client: MemoryClient, states: StateFormat, make_tokens: MakeTokens
) -> None:
    """Bug: the chunk behind it was counted as lost, and put all the same."""
    saver = StateSaver(client, states)
    queue = queue_of(saver)
    client.store.faults.put_rejection = lambda number, index: (
        Reason.DRAM_FULL if number == 0 else None
    )
    put, held = queue._put, [True]

    def held_back() -> None:
        if not held:
            put()

    queue._put = held_back  # type: ignore[method-assign]
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (0, 0, 8))
    # The step asks for a put while it is appended: a second task is behind that one for sure.
    for _ in range(2):
        queue._executor.submit(lambda: None).result()
    assert len(queue._batch) == 1
    held.clear()
    assert queue._region is not None
    queue._region._is_alive = lambda: False
    step(saver, (0, 8, 8))
    saver.end_request(0)
    assert saver.finish() == SaveReport(dropped_tokens=16)
    assert client.store.chunks == {}
    saver.close()


def test_a_chunk_behind_a_refused_one_of_the_same_put_does_not_count(
    client: MemoryClient, states: StateFormat, make_tokens: MakeTokens
) -> None:
    put = client.put

    def first_refused(*arguments: Any, **options: Any) -> PutReport:
        results = put(*arguments, **options).results
        assert len(results) == 2
        refused = PutResult(PutOutcome.REJECTED, Reason.DRAM_FULL)
        return PutReport((refused, *results[1:]))

    client.put = first_refused  # type: ignore[method-assign]
    saver = StateSaver(client, states)
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (0, 0, 16))
    saver.end_request(0)
    assert saver.finish() == SaveReport(dropped_tokens=16)
    saver.close()


def test_a_span_that_cannot_be_made_gives_its_region_back(
    client: MemoryClient,
    states: StateFormat,
    make_tokens: MakeTokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: the region was nobody's until the session ended."""

    def fail(*arguments: object, **options: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr("engine_adapters.reading.decoded_slices.torch.empty", fail)
    pieces = pieces_of([bytes(32)], chunk_tokens=CHUNK_TOKENS)
    options = ReadOptions(order=Order.HEAD_FIRST, span_chunks=1)
    opener = SpanOpener(client, states, options)
    with pytest.raises(MemoryError):
        opener.open(ReadPolicy([range(1)], span_chunks=1), pieces, connects=True)
    assert client.store.regions_in_use == 0


def test_the_arena_of_a_turn_has_room_for_snapshots_that_no_codec_makes_smaller(
    states: StateFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: it was as large as what is encoded, and whole prefill steps were never saved."""
    snapshot_bytes = SnapshotGeometry(states.states, 10_000).byte_count
    monkeypatch.setattr("engine_adapters.runner.turn.SPAN_BYTES", 4096)
    assert arena_bytes_of(states, 10_000) == ARENA_SPANS * snapshot_bytes
    monkeypatch.setattr("engine_adapters.runner.turn.SPAN_BYTES_MAX", 4096)
    assert arena_bytes_of(states, 10_000) == ARENA_SPANS * 4096
