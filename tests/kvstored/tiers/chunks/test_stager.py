"""Between a claimed frame and a durable chunk."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.extent_header import SliceSum
from kvstored.format.geometry import ChunkGeometry, class_bytes
from kvstored.format.identity import ChunkId
from kvstored.store.write import extents
from kvstored.tiers.chunks.frame import Frame, FrameState
from kvstored.tiers.chunks.requests import NewChunk, PutOutcome
from kvstored.tiers.chunks.stager import WantedChunk, already_durable
from kvstored_contract.reasons import Reason
from tests.support.stores import (
    LAYOUT,
    NAMESPACE,
    StoreUnderTest,
    forget_dram,
    key,
    open_store,
    put_durable,
)
from tests.support.waiting import PATIENCE_S, SOON_S


def filling(opened: StoreUnderTest, number: int) -> Frame:
    """The frame of a chunk that somebody else has begun to put."""
    claim = opened.store._dram.claim(
        ChunkId(NAMESPACE, key(number)),
        layout_id=LAYOUT.layout_id,
        geometry=ChunkGeometry.of(LAYOUT, 1),
        class_bytes=class_bytes(LAYOUT),
        deadline=0,
    )
    assert claim is not None
    assert claim.is_new
    return claim.frame


def when_waited_for(
    opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch, what: Callable[[Frame], None]
) -> None:
    """Lets the other put end as soon as somebody waits for it."""
    wait_filled = opened.store._dram.wait_filled

    def ending(frame: Frame, *arguments: Any) -> bool:
        what(frame)
        return wait_filled(frame, *arguments)

    monkeypatch.setattr(opened.store._dram, "wait_filled", ending)


def never(_: Frame) -> tuple[SliceSum, ...]:
    raise AssertionError("a stored chunk is not written again")


def wanted(number: int, *, timeout_s: float) -> WantedChunk:
    deadline = time.monotonic() + timeout_s
    return WantedChunk(
        chunk=ChunkId(NAMESPACE, key(number)),
        new=NewChunk(key(number), b"", LAYOUT.chunk_tokens, 0),
        layout=LAYOUT,
        deadline=deadline,
        frame_deadline=deadline,
    )


def test_who_waits_for_a_chunk_that_was_committed_meanwhile_hears_that_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the answer for a durable chunk was that the time was over, or it was written again."""
    with open_store(tmp_path) as opened:
        opened.fill(1)
        put_durable(opened, [1])
        forget_dram(opened, [1])
        used_bytes = opened.stats().dram_used_bytes
        frame = filling(opened, 1)
        dram = opened.store._dram
        when_waited_for(opened, monkeypatch, lambda each: dram.abandon(each, Reason.UNSPECIFIED))
        ticket = opened.store.put_path._stager.put(wanted(1, timeout_s=PATIENCE_S), never)
        assert ticket.outcome is PutOutcome.EXISTED
        assert not dram.contains(frame.chunk)
        assert opened.stats().dram_used_bytes == used_bytes


def test_who_waits_for_the_write_of_a_chunk_hears_that_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write goes on without a frame, and its commit comes while the second put waits."""
    with open_store(tmp_path) as opened:
        opened.fill(1)
        put_durable(opened, [1])
        forget_dram(opened, [1])
        writes: list[Future[Reason] | None] = [already_durable(), None]
        monkeypatch.setattr(opened.store._store, "pending", lambda _: writes.pop(0))
        ticket = opened.store.put_path._stager.put(wanted(1, timeout_s=PATIENCE_S), never)
        assert ticket.outcome is PutOutcome.EXISTED


def test_a_new_chunk_is_looked_up_early_and_under_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path) as opened:
        opened.fill(1)
        index = opened.store._store.index
        get_many, asked = index.get_many, []

        def noted(chunks: Sequence[ChunkId]) -> list[ChunkRecord | None]:
            asked.append(list(chunks))
            return get_many(chunks)

        monkeypatch.setattr(index, "get_many", noted)
        (ticket,) = opened.put([1])
        assert ticket.outcome is PutOutcome.STORED
        assert asked == 2 * [[ChunkId(NAMESPACE, key(1))]]


def written_and_used(opened: StoreUnderTest) -> tuple[int, int]:
    """Bytes that the devices have written, and those of extents."""
    devices = opened.stats().devices
    return sum(one.written_bytes for one in devices), sum(one.used_bytes for one in devices)


def test_a_chunk_that_was_stored_since_the_early_answer_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look-up under the lock finds it; the second put's bytes are the same."""
    with open_store(tmp_path) as opened:
        opened.fill(1)
        put_durable(opened, [1])
        forget_dram(opened, [1])
        written, used = written_and_used(opened)
        monkeypatch.setattr(opened.store.put_path._stager, "are_stored", lambda _: [False])
        (ticket,) = opened.put([1])
        assert ticket.durable is not None
        assert ticket.durable.result(PATIENCE_S) is Reason.UNSPECIFIED
        assert written_and_used(opened) == (written, used)


def test_a_chunk_whose_first_put_fails_is_stored_by_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the second heard that the chunk exists, and nobody stored it."""
    with open_store(tmp_path) as opened:
        opened.fill(1)
        frame = filling(opened, 1)
        dram = opened.store._dram
        when_waited_for(opened, monkeypatch, lambda each: dram.abandon(each, Reason.STORE_FULL))
        (ticket,) = opened.put([1])
        assert frame.durable.result() is Reason.STORE_FULL
        assert ticket.outcome is PutOutcome.STORED
        assert ticket.durable is not None
        assert ticket.durable.result(PATIENCE_S) is Reason.UNSPECIFIED


def test_a_chunk_whose_first_put_succeeds_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path) as opened:
        frame = filling(opened, 1)
        dram = opened.store._dram
        when_waited_for(opened, monkeypatch, lambda each: dram.publish(each, FrameState.DIRTY))
        (ticket,) = opened.put([1])
        assert ticket.outcome is PutOutcome.EXISTED
        dram.settle(frame, Reason.UNSPECIFIED)
        assert ticket.durable is not None
        assert ticket.durable.result() is Reason.UNSPECIFIED


def test_a_chunk_that_is_still_being_put_at_the_deadline_does_not_exist(tmp_path: Path) -> None:
    """Bug: the answer was that it exists, though it might never be readable."""
    with open_store(tmp_path) as opened:
        frame = filling(opened, 1)
        (ticket,) = opened.put([1], timeout_s=0)
        assert (ticket.outcome, ticket.reason) == (PutOutcome.REJECTED, Reason.DEADLINE)
        assert ticket.durable is None
        opened.store._dram.abandon(frame, Reason.STORE_FULL)


def test_a_chunk_that_another_put_fills_did_reject_those_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: only what finds no room is refused with all that follows."""
    monkeypatch.setattr(extents, "OPENING_WAIT_S", SOON_S)
    with open_store(tmp_path) as opened:
        opened.fill(3)
        frame = filling(opened, 1)
        tickets = opened.put([0, 1, 2], timeout_s=0)
        assert [ticket.outcome for ticket in tickets] == [
            PutOutcome.STORED,
            PutOutcome.REJECTED,
            PutOutcome.STORED,
        ]
        opened.store._dram.abandon(frame, Reason.STORE_FULL)
