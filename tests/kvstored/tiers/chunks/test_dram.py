"""The DRAM tier: frames, their life, and what may be evicted."""

import math
import threading
import time
from pathlib import Path

import pytest

from kvstored.format.geometry import ChunkGeometry, class_bytes
from kvstored.format.identity import ChunkId
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.frame import Claim, Frame, FrameState
from kvstored.tiers.policy.lru import LruPolicy
from kvstored.tiers.policy.shares import TierShares
from kvstored_contract.reasons import Reason
from tests.support.stores import LAYOUT, MIB, NAMESPACE, key
from tests.support.waiting import PATIENCE_S, wait_until

FRAMES = MIB // class_bytes(LAYOUT)


@pytest.fixture
def tier() -> DramTier:
    return DramTier(
        capacity_bytes=MIB + 5, slab_bytes=MIB, shares=TierShares.undivided(LruPolicy())
    )


def chunk(number: int) -> ChunkId:
    return ChunkId(NAMESPACE, key(number))


def claim(tier: DramTier, number: int, timeout_s: float = 0.0) -> Claim | None:
    return tier.claim(
        chunk(number),
        layout_id=LAYOUT.layout_id,
        geometry=ChunkGeometry.of(LAYOUT, LAYOUT.chunk_tokens),
        class_bytes=class_bytes(LAYOUT),
        deadline=time.monotonic() + timeout_s,
    )


def always() -> bool:
    return True


def new_frame(tier: DramTier, number: int) -> Frame:
    claimed = claim(tier, number)
    assert claimed is not None
    assert claimed.is_new
    return claimed.frame


def clean_frame(tier: DramTier, number: int) -> Frame:
    frame = new_frame(tier, number)
    tier.publish(frame, FrameState.DIRTY)
    tier.settle(frame, Reason.UNSPECIFIED)
    return frame


def test_capacity_is_whole_slabs(tier: DramTier) -> None:
    assert tier.space.capacity_bytes == MIB
    assert tier.space.class_bytes_max == MIB
    assert (tier.space.used_bytes, tier.chunk_count) == (0, 0)


def test_frame_is_readable_once_published(tier: DramTier) -> None:
    frame = new_frame(tier, 1)
    assert not tier.contains(chunk(1))
    assert tier.pin(chunk(1)) is None
    tier.publish(frame, FrameState.DIRTY)
    assert tier.contains(chunk(1))
    assert tier.pin(chunk(1)) is frame
    assert tier.pin(chunk(2)) is None


def test_second_claim_finds_the_first_frame(tier: DramTier) -> None:
    frame = new_frame(tier, 1)
    assert claim(tier, 1) == Claim(frame, is_new=False, is_filling=True)
    tier.publish(frame, FrameState.DIRTY)
    assert claim(tier, 1) == Claim(frame, is_new=False)


@pytest.mark.parametrize("is_published", [True, False])
def test_who_waits_for_a_frame_hears_when_it_is_filled_or_given_up(
    tier: DramTier, is_published: bool
) -> None:
    frame = new_frame(tier, 1)
    filled: list[bool] = []
    waiter = threading.Thread(
        target=lambda: filled.append(tier.wait_filled(frame, math.inf, always))
    )
    waiter.start()
    if is_published:
        tier.publish(frame, FrameState.DIRTY)
    else:
        tier.abandon(frame, Reason.STORE_FULL)
    waiter.join(PATIENCE_S)
    assert filled == [True]


def test_nobody_waits_for_a_frame_behind_a_deadline_or_for_a_client_that_left(
    tier: DramTier,
) -> None:
    frame = new_frame(tier, 1)
    assert not tier.wait_filled(frame, 0, always)
    assert not tier.wait_filled(frame, math.inf, lambda: False)


def test_clean_frames_are_evicted_in_order_of_use(tier: DramTier) -> None:
    for number in range(FRAMES):
        clean_frame(tier, number)
    pinned = tier.pin(chunk(0))
    assert pinned is not None
    tier.unpin([pinned])
    clean_frame(tier, 100)
    assert tier.contains(chunk(0))
    assert not tier.contains(chunk(1))


def test_dirty_and_pinned_frames_are_not_evicted(tier: DramTier) -> None:
    for number in range(FRAMES - 1):
        tier.publish(new_frame(tier, number), FrameState.DIRTY)
    last = clean_frame(tier, FRAMES - 1)
    assert tier.pin(chunk(FRAMES - 1)) is last
    assert claim(tier, 100) is None
    tier.unpin([last])
    assert claim(tier, 100) is not None


def test_claim_waits_for_a_write_to_end(tier: DramTier) -> None:
    frames = [new_frame(tier, number) for number in range(FRAMES)]
    for frame in frames:
        tier.publish(frame, FrameState.DIRTY)
    claims: list[Claim | None] = []
    waiter = threading.Thread(target=lambda: claims.append(claim(tier, 100, PATIENCE_S)))
    waiter.start()
    wait_until(lambda: bool(tier._room._waiters))  # type: ignore[attr-defined]  # the only sign
    assert claims == []
    tier.settle(frames[0], Reason.UNSPECIFIED)
    waiter.join()
    assert claims[0] is not None
    assert claims[0].is_new


def test_failed_write_takes_the_chunk_away(tier: DramTier) -> None:
    frame = new_frame(tier, 1)
    tier.publish(frame, FrameState.DIRTY)
    tier.settle(frame, Reason.DEVICE_FAILED)
    assert not tier.contains(chunk(1))
    assert frame.durable.result() is Reason.DEVICE_FAILED
    assert tier.space.used_bytes == 0


def test_abandoned_claim_gives_its_frame_back(tier: DramTier) -> None:
    tier.abandon(new_frame(tier, 1), Reason.STORE_FULL)
    elsewhere = new_frame(tier, 2)
    tier.abandon(elsewhere, Reason.UNSPECIFIED)
    assert elsewhere.durable.result() is Reason.UNSPECIFIED
    assert tier.space.used_bytes == 0
    assert tier.chunk_count == 0


@pytest.mark.parametrize("state", [FrameState.DIRTY, FrameState.CLEAN])
def test_dropped_while_filling_is_never_readable(tier: DramTier, state: FrameState) -> None:
    frame = new_frame(tier, 1)
    tier.drop(chunk(1))
    tier.publish(frame, state)
    assert not tier.contains(chunk(1))
    if state is FrameState.DIRTY:
        assert tier.space.used_bytes > 0
        tier.settle(frame, Reason.UNSPECIFIED)
    assert tier.space.used_bytes == 0


def test_dropped_frame_stays_while_it_is_read(tier: DramTier) -> None:
    frame = clean_frame(tier, 1)
    assert tier.pin(chunk(1)) is frame
    tier.drop(chunk(1))
    tier.drop(chunk(1))
    assert tier.space.used_bytes > 0
    tier.unpin([frame])
    assert tier.space.used_bytes == 0


def test_room_of_other_classes_is_taken_too(tier: DramTier, tmp_path: Path) -> None:
    for number in range(FRAMES):
        clean_frame(tier, number)
    claimed = tier.claim(
        chunk(500),
        layout_id=LAYOUT.layout_id,
        geometry=ChunkGeometry.of(LAYOUT, LAYOUT.chunk_tokens),
        class_bytes=MIB // 2,
        deadline=time.monotonic(),
    )
    assert claimed is not None
    assert tier.chunk_count == 1


def test_what_cannot_be_read_from_here_any_more_is_told() -> None:
    """Of a chunk that was dropped while it was filled, followers heard that it is stored."""
    left: list[ChunkId] = []
    tier = DramTier(
        capacity_bytes=MIB,
        slab_bytes=MIB,
        shares=TierShares.undivided(LruPolicy()),
        on_left=left.append,
    )
    clean_frame(tier, 1)
    tier.drop(chunk(1))
    assert left == [chunk(1)]
    tier.abandon(new_frame(tier, 2), Reason.STORE_FULL)
    assert left == [chunk(1)]
    filled = new_frame(tier, 3)
    tier.drop(chunk(3))
    assert left == [chunk(1)]
    tier.publish(filled, FrameState.DIRTY)
    assert left == [chunk(1), chunk(3)]
    for number in range(4, FRAMES + 5):
        clean_frame(tier, number)
    assert left[2] == chunk(4)


def test_one_put_dropped_the_new_frame_of_another(tier: DramTier) -> None:
    """Bug: both had found the chunk in DRAM only, and the second dropped it by its key."""
    old = clean_frame(tier, 1)
    assert tier.drop_unless_kept(old)
    new = new_frame(tier, 1)
    assert tier.drop_unless_kept(old)
    assert tier._frames[chunk(1)] is new
