"""Between a claimed frame and a durable chunk."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvstored.format.extent_header import SliceSum
from kvstored.format.geometry import ChunkGeometry, class_bytes
from kvstored.format.identity import ChunkId
from kvstored.tiers.chunks.frame import Frame, FrameState
from kvstored.tiers.chunks.requests import NewChunk, PutOutcome
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
from tests.support.waiting import PATIENCE_S


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


def test_who_waits_for_a_chunk_that_was_committed_meanwhile_hears_that_it_is_stored(
    tmp_path: Path,
) -> None:
    """Bug: the answer for a durable chunk was that the time was over."""
    with open_store(tmp_path) as opened:
        opened.fill(1)
        put_durable(opened, [1])
        forget_dram(opened, [1])
        used_bytes = opened.stats().dram_used_bytes
        frame = filling(opened, 1)
        ticket = opened.store.put_path._stager.stage(
            frame,
            NewChunk(key(1), b"", LAYOUT.chunk_tokens, 0),
            LAYOUT,
            deadline=time.monotonic(),
            fill=never,
        )
        assert ticket.outcome is PutOutcome.EXISTED
        assert frame.durable.result() is Reason.UNSPECIFIED
        assert not opened.store._dram.contains(frame.chunk)
        assert opened.stats().dram_used_bytes == used_bytes


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


def test_a_chunk_that_another_put_fills_did_reject_those_behind_it(tmp_path: Path) -> None:
    """Bug: only what finds no room is refused with all that follows."""
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
