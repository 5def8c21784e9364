"""What waits is in DRAM before it is asked for."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.io.device import Device
from kvstored.io.engine import Background, IoRequest
from kvstored.io.memory import AlignedMemory
from kvstored.store.index.index import IndexFailure
from kvstored.tiers.chunks.chunk_fetcher import Fetched
from kvstored.tiers.chunks.frame import Claim
from kvstored.tiers.hints.prefetcher import LOADED_AT_ONCE, Prefetcher, watermarks
from kvstored.tiers.policy.prefetch_plan import WaitingSequence
from tests.kvstored.tiers.hints.test_hints import hint, in_dram
from tests.support.devices import FailingDevice
from tests.support.stores import (
    BASE,
    LAYOUT,
    MIB,
    NAMESPACE,
    StoreUnderTest,
    forget_dram,
    key,
    new_board,
    open_store,
    put_durable,
)
from tests.support.waiting import wait_until


def prefetched(opened: StoreUnderTest) -> int:
    return opened.stats().counters.get("prefetched_chunks", 0)


def settled(opened: StoreUnderTest) -> None:
    """Waits until the layout is in the index."""
    index = opened.store._store.index
    opened.store.layouts.register(LAYOUT)
    wait_until(lambda: index.layout(LAYOUT.layout_id) is not None)


def test_what_waits_is_fetched_and_read_from_dram(opened: StoreUnderTest) -> None:
    settled(opened)
    payload = opened.fill(6)
    put_durable(opened, list(range(6)))
    forget_dram(opened, list(range(6)))
    hint(opened, {"a": [0, 1, 2], "b": [3]})
    wait_until(lambda: in_dram(opened, range(6)) == [0, 1, 2, 3])
    wait_until(lambda: prefetched(opened) == 4)
    board = new_board(4)
    stream = opened.read([0, 1, 2, 3], base=BASE, board=board)
    assert stream.wait(10)
    assert (stream.task.dram_chunks, stream.task.nvme_chunks) == (4, 0)
    byte_count = 4 * len(payload) // 6
    assert bytes(opened.arena[BASE : BASE + byte_count]) == payload[:byte_count]
    counters = opened.stats().counters
    assert counters["prefetched_bytes"] == 4 * (32 * 1024 + 4096)


def test_what_does_not_fit_dram_is_left(tmp_path: Path) -> None:
    """The window ends before the buffer of the watermarks, and what is in it stays."""
    with open_store(tmp_path, dram_bytes=2 * MIB, slabs_per_device=8) as opened:
        settled(opened)
        numbers = list(range(120))
        for first in range(0, 120, 10):
            put_durable(opened, numbers[first : first + 10])
        hint(opened, {f"{number}": [number] for number in numbers})
        window = (2 * MIB - watermarks(2 * MIB).high_bytes) // (36 * 1024)
        wait_until(lambda: in_dram(opened, range(120))[: window - 4] == numbers[: window - 4])
        opened.store.hints.end_session(1)
        hint(opened, {"x": numbers[60:70]})
        wait_until(lambda: set(numbers[60:70]) <= set(in_dram(opened, range(120))))


def test_nothing_was_fetched_for_a_sequence_larger_than_dram(tmp_path: Path) -> None:
    """Bug: the plan was empty. Its first chunks are in DRAM as soon as it is hinted."""
    with open_store(tmp_path, dram_bytes=2 * MIB, slabs_per_device=8) as opened:
        settled(opened)
        for first in range(0, 120, 10):
            put_durable(opened, list(range(first, first + 10)))
        assert not in_dram(opened, range(20))
        hint(opened, {"a": list(range(120))})
        wait_until(lambda: in_dram(opened, range(20)) == list(range(20)))


def test_a_buffer_is_free_while_somebody_waits(tmp_path: Path) -> None:
    with open_store(tmp_path, dram_bytes=4 * MIB, slabs_per_device=8) as opened:
        settled(opened)
        for first in range(0, 120, 10):
            put_durable(opened, list(range(first, first + 10)))
        space = opened.store._dram.space
        marks = watermarks(space.capacity_bytes)
        assert space.free_bytes < marks.high_bytes
        hint(opened, {"a": [119]})
        wait_until(lambda: space.free_bytes >= marks.low_bytes, within_s=30)
        assert 119 in in_dram(opened, range(120))


def test_nothing_that_waits_goes_for_the_buffer(tmp_path: Path) -> None:
    with open_store(tmp_path, dram_bytes=2 * MIB) as opened:
        put_durable(opened, list(range(10)))
        hint(opened, {"a": list(range(10))})
        opened.store._dram.hints.free_up(2 * MIB)
        assert in_dram(opened, range(10)) == list(range(10))
        opened.store.hints.end_session(1)
        opened.store._dram.hints.free_up(2 * MIB)
        assert in_dram(opened, range(10)) == []


def test_reads_ahead_are_traffic_of_their_own(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(opened)
    put_durable(opened, [0, 1])
    forget_dram(opened, [0, 1])
    engine = opened.store._promoter._loader._engine
    seen: list[IoRequest] = []
    submit = engine.submit

    def noted(request: IoRequest) -> None:
        seen.append(request)
        submit(request)

    monkeypatch.setattr(engine, "submit", noted)
    hint(opened, {"a": [0, 1]})
    wait_until(lambda: in_dram(opened, range(2)) == [0, 1])
    assert {request.traffic for request in seen} == {Background.PREFETCH}


def test_what_is_not_stored_or_damaged_is_passed_over(opened: StoreUnderTest) -> None:
    settled(opened)
    put_durable(opened, [0, 1, 2])
    forget_dram(opened, [0, 1, 2])
    (record,) = opened.store._store.find([ChunkId(NAMESPACE, key(1))])
    assert record is not None
    damaged = AlignedMemory(4096)
    damaged.view[:] = b"\1" * 4096
    device = opened.devices[record.extent.device_index]
    device.writev([damaged.view], record.extent.offset + 4096)
    hint(opened, {"a": [7, 1, 0], "b": [2]})
    wait_until(lambda: in_dram(opened, range(3)) == [0, 2])
    wait_until(lambda: opened.store._store.find([ChunkId(NAMESPACE, key(1))]) == [None])


def test_an_index_that_failed_left_frames_unfinished(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the first damaged chunk that could not be put into quarantine left the frames of all
    loads after it, and the pins of all."""
    settled(opened)
    put_durable(opened, [0, 1, 2])
    forget_dram(opened, [0, 1, 2])
    store = opened.store._store
    monkeypatch.setattr(store, "quarantine", Mock(side_effect=IndexFailure("damaged")))
    for number in (0, 2):
        (record,) = store.find([ChunkId(NAMESPACE, key(number))])
        assert record is not None
        damaged = AlignedMemory(4096)
        damaged.view[:] = b"\1" * 4096
        device = opened.devices[record.extent.device_index]
        device.writev([damaged.view], record.extent.offset + 4096)
    hint(opened, {"a": [0, 1, 2]})
    wait_until(lambda: in_dram(opened, range(3)) == [1])
    wait_until(lambda: not any(store.pins.is_pinned(ChunkId(NAMESPACE, key(n))) for n in range(3)))


def test_a_device_that_fails_ends_no_plan(tmp_path: Path) -> None:
    devices: list[FailingDevice] = []

    def wrap(device: Device) -> Device:
        devices.append(FailingDevice(device))
        return devices[-1]

    with open_store(tmp_path, device_count=1, wrap=wrap) as opened:
        settled(opened)
        put_durable(opened, [0, 1])
        forget_dram(opened, [0, 1])
        devices[0].broken.add("read")
        hint(opened, {"a": [0, 1]})
        wait_until(lambda: "prefetched_chunks" in opened.stats().counters)
        assert (prefetched(opened), in_dram(opened, range(2))) == (0, [])
        devices[0].broken.clear()
        hint(opened, {"a": [0, 1]}, versions=(2, 0))
        wait_until(lambda: in_dram(opened, range(2)) == [0, 1])


def test_a_plan_for_a_queue_that_has_changed_went_on_to_its_end(opened: StoreUnderTest) -> None:
    """Bug: it looks through all that DRAM has, and a new queue waited for that."""
    settled(opened)
    store = opened.store
    looked: list[int] = []

    def waiting() -> Iterator[WaitingSequence[ChunkId]]:
        for number in range(10):
            looked.append(number)
            yield WaitingSequence(chunks=(ChunkId(NAMESPACE, key(number)),), chunk_bytes=1)

    prefetcher = Prefetcher(
        waiting=list,
        store=store._store,
        dram=store._dram,
        engine=Mock(),
        counters=Counters(),
    )
    prefetcher.close()
    assert list(prefetcher._until_stale(waiting())) == []
    assert looked == [0]


def test_what_found_no_room_was_not_tried_again_before_the_queue_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a request that begins keeps its own chunks in DRAM, and the next one's found no room."""
    with open_store(tmp_path, dram_bytes=2 * MIB, slabs_per_device=8) as opened:
        settled(opened)
        for first in range(0, 120, 10):
            put_durable(opened, list(range(first, first + 10)))
        dram = opened.store._dram
        here = in_dram(opened, range(120))
        pinned = [dram.pin(ChunkId(NAMESPACE, key(number))) for number in here]
        absent = [number for number in range(120) if number not in here][:20]
        claims: list[object] = []
        claim = dram.claim

        def noted(*arguments: Any, **options: Any) -> Claim | None:
            claims.append(claim(*arguments, **options))
            return claims[-1]  # type: ignore[return-value]  # as it came

        monkeypatch.setattr(dram, "claim", noted)
        hint(opened, {"a": absent})
        try:
            wait_until(lambda: None in claims)
            assert in_dram(opened, absent) != absent
        finally:
            dram.unpin(frame for frame in pinned if frame is not None)
        wait_until(lambda: in_dram(opened, absent) == absent)


class Rooms:
    """A fetcher that finds room for chunks of some namespaces alone, and for no ``large`` ones."""

    def __init__(self, *roomy: bytes, large: Collection[ChunkId] = ()) -> None:
        self.roomy = set(roomy)
        self.large = large
        self.asked: list[ChunkId] = []

    def fetch(self, chunks: Sequence[ChunkId], **_: object) -> Fetched:
        self.asked += chunks
        unplaced = [chunk for chunk in chunks if not self._has_room(chunk)]
        source = Mock(geometry=Mock(extent_bytes=1))
        return Fetched(loaded=[source] * (len(chunks) - len(unplaced)), unplaced=unplaced)

    def _has_room(self, chunk: ChunkId) -> bool:
        return chunk.namespace_id in self.roomy and chunk not in self.large


def prefetcher_of(
    opened: StoreUnderTest, queue: list[WaitingSequence[ChunkId]], rooms: Rooms
) -> Prefetcher:
    """One whose chunks find room as ``rooms`` say."""
    store = opened.store
    prefetcher = Prefetcher(
        waiting=lambda: queue,
        store=store._store,
        dram=store._dram,
        engine=Mock(),
        counters=Mock(),
    )
    prefetcher._fetcher = rooms  # type: ignore[assignment]  # as it is used
    return prefetcher


def test_chunks_without_room_hold_up_no_smaller_ones(opened: StoreUnderTest) -> None:
    """Of one namespace: what is larger waits alone, while others of its batch find room."""
    chunks = [ChunkId(NAMESPACE, key(number)) for number in range(40)]
    rooms = Rooms(NAMESPACE, large=chunks[:4])
    queue = [WaitingSequence(chunks=chunks, chunk_bytes=1)]
    with closing(prefetcher_of(opened, queue, rooms)) as prefetcher:
        prefetcher.wake()
        wait_until(lambda: set(chunks) <= set(rooms.asked))
        assert rooms.asked[:40] == chunks


def test_a_namespace_without_room_holds_up_no_other(opened: StoreUnderTest) -> None:
    full, roomy = b"f" * 16, b"r" * 16
    queue = [
        WaitingSequence(chunks=[ChunkId(namespace, key(n)) for n in range(40)], chunk_bytes=1)
        for namespace in (full, roomy)
    ]
    rooms, first = Rooms(roomy), set(queue[0].chunks[:LOADED_AT_ONCE])
    with closing(prefetcher_of(opened, queue, rooms)) as prefetcher:
        prefetcher.wake()
        wait_until(lambda: set(queue[1].chunks) <= set(rooms.asked))
        # After the first ones that found no room those after them wait with them.
        assert {chunk for chunk in rooms.asked if chunk.namespace_id == full} == first
        rooms.asked.clear()
        rooms.roomy.add(full)
        wait_until(lambda: set(queue[0].chunks) <= set(rooms.asked))
        assert roomy not in {chunk.namespace_id for chunk in rooms.asked}
