"""Whose frames go for whom, where namespaces share a DRAM tier."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kvstored.format.geometry import ChunkGeometry
from kvstored.format.identity import ChunkId, namespace_id
from kvstored.tiers.chunks import dram, frame_victims
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.frame import Frame, FrameState
from kvstored.tiers.policy.lru import LruPolicy
from kvstored.tiers.policy.shares import OTHERS, Quota, TierShares
from kvstored_contract.reasons import Reason
from tests.kvstored.tiers.chunks.test_dram_room import ONE_UNIT, SLAB_BYTES, UNIT_BYTES
from tests.support.stores import key
from tests.support.waiting import PATIENCE_S, wait_until

TEAM, ANY = namespace_id("team"), namespace_id("any")
PER_SLAB = SLAB_BYTES // UNIT_BYTES


class SharedTier:
    """A tier of some slabs whose frames are clean at once. Quotas are in units."""

    def __init__(self, slab_count: int, *, sure: int = 0, most: int | None = None) -> None:
        limit_bytes = None if most is None else most * UNIT_BYTES
        quota = Quota(guaranteed_bytes=sure * UNIT_BYTES, limit_bytes=limit_bytes)
        self.kept: set[ChunkId] = set()
        self.dram = DramTier(
            capacity_bytes=slab_count * SLAB_BYTES,
            slab_bytes=SLAB_BYTES,
            shares=TierShares.divided(
                {TEAM: quota}, lambda _: LruPolicy(), lambda chunk: chunk.namespace_id
            ),
            is_kept=self.kept.__contains__,
        )

    def put(
        self,
        namespace: bytes,
        number: int,
        units: int = 1,
        *,
        timeout_s: float = 0,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Frame | None:
        claimed = self.dram.claim(
            ChunkId(namespace, key(number)),
            layout_id=bytes(32),
            geometry=ChunkGeometry.of_slices((4096,)),
            class_bytes=units * UNIT_BYTES,
            deadline=time.monotonic() + timeout_s,
            is_wanted=is_wanted,
        )
        if claimed is None:
            return None
        self.dram.publish(claimed.frame, FrameState.DIRTY)
        self.dram.settle(claimed.frame, Reason.UNSPECIFIED)
        return claimed.frame

    def here(self, namespace: bytes, numbers: range) -> list[int]:
        return [one for one in numbers if self.dram.contains(ChunkId(namespace, key(one)))]

    def used(self, account: bytes) -> int:
        return self.dram.shares.use.used_bytes(account) // UNIT_BYTES


@contextmanager
def waiting_put(tier: SharedTier) -> Iterator[None]:
    """A put of a larger class that waits for room as long as the body takes."""
    is_over = threading.Event()
    thread = threading.Thread(
        target=lambda: tier.put(
            ANY, 10**6, units=2, timeout_s=PATIENCE_S, is_wanted=lambda: not is_over.is_set()
        )
    )
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_at_its_limit_a_namespace_gives_its_oldest() -> None:
    tier = SharedTier(1, most=4)
    for number in range(10):
        assert tier.put(ANY, number)
        assert tier.put(TEAM, number)
    assert tier.here(TEAM, range(10)) == [6, 7, 8, 9]
    assert tier.here(ANY, range(10)) == list(range(10))
    assert (tier.used(TEAM), tier.used(OTHERS)) == (4, 10)


def test_at_its_limit_it_gives_as_much_of_other_classes_as_a_larger_chunk_takes() -> None:
    tier = SharedTier(2, most=4)
    for number in range(4):
        tier.put(TEAM, number)
    assert tier.put(TEAM, 10, units=2)
    assert tier.here(TEAM, range(11)) == [2, 3, 10]
    assert tier.used(TEAM) == 4


def test_at_its_limit_nothing_goes_in_vain() -> None:
    tier = SharedTier(2, most=4)
    for number in range(4):
        tier.put(TEAM, number)
    tier.kept.update(ChunkId(TEAM, key(number)) for number in range(3))
    assert tier.put(TEAM, 10, units=2) is None
    assert tier.put(TEAM, 11, units=5) is None
    assert tier.here(TEAM, range(12)) == [0, 1, 2, 3]
    assert tier.put(TEAM, 12)
    assert tier.here(TEAM, range(13)) == [0, 1, 2, 12]


@pytest.mark.parametrize("parts", [4, 1])
def test_after_its_limit_was_lowered_by_much_it_got_no_frame(
    monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    """Bug: what could go was looked at only up to a number, was not enough, and so did not go."""
    monkeypatch.setattr(frame_victims, "VICTIMS_LOOKED_AT_MAX", 3)
    monkeypatch.setattr(dram, "LIMIT_PARTS_MAX", parts)
    tier = SharedTier(1, most=20)
    for number in range(14):
        assert tier.put(TEAM, number)
    use = tier.dram.shares.use
    use.quotas = type(use.quotas)({TEAM: Quota(limit_bytes=4 * UNIT_BYTES)})
    puts = [tier.put(TEAM, number) is not None for number in range(20, 25)]
    assert puts == ([True] * 5 if parts == 4 else [False] * 3 + [True] * 2)
    assert tier.used(TEAM) == 4
    assert tier.here(TEAM, range(20)) == ([] if parts == 4 else [12, 13])


def test_a_chunk_of_larger_slabs_emptied_all_of_them() -> None:
    """Bug: a layout of before the slabs were made smaller fits into none."""
    tier = SharedTier(2)
    for number in range(2 * PER_SLAB):
        assert tier.put(ANY, number)
    assert tier.put(ANY, 1000, units=PER_SLAB + 1) is None
    assert len(tier.here(ANY, range(2 * PER_SLAB))) == 2 * PER_SLAB


def test_a_guaranteed_share_stays() -> None:
    tier = SharedTier(1, sure=10)
    for number in range(10):
        tier.put(TEAM, number)
    for number in range(3 * PER_SLAB):
        assert tier.put(ANY, number)
    assert tier.here(TEAM, range(10)) == list(range(10))
    assert len(tier.here(ANY, range(3 * PER_SLAB))) == PER_SLAB - 10


def test_within_its_share_a_namespace_takes_from_others() -> None:
    tier = SharedTier(1, sure=10)
    for number in range(PER_SLAB):
        tier.put(ANY, number)
    for number in range(10):
        assert tier.put(TEAM, number)
    assert tier.here(TEAM, range(10)) == list(range(10))
    assert tier.here(ANY, range(PER_SLAB)) == list(range(10, PER_SLAB))


def test_a_slab_with_guaranteed_chunks_is_not_emptied() -> None:
    tier = SharedTier(2, sure=10)
    for number in range(10):
        tier.put(TEAM, number)
    for number in range(2 * PER_SLAB - 10):
        tier.put(ANY, number)
    assert tier.put(ANY, 10**6, units=2)
    assert tier.put(ANY, 10**6 + 1, units=4)
    assert tier.here(TEAM, range(10)) == list(range(10))


def test_a_slab_with_guaranteed_chunks_is_not_drained() -> None:
    """Nor is one that got such chunks while it is drained: these stay."""
    tier = SharedTier(2, sure=10)
    held = tier.put(TEAM, 0)
    other = [tier.put(ANY, number) for number in range(2 * PER_SLAB - 1)]
    assert held
    pinned = [tier.dram.pin(frame.chunk) for frame in (other[0], other[-1]) if frame]
    results: list[Frame | None] = []
    waiting = threading.Thread(
        target=lambda: results.append(tier.put(ANY, 10**6, units=2, timeout_s=PATIENCE_S))
    )
    waiting.start()
    wait_until(lambda: tier.dram._draining is not None)
    assert tier.dram._draining != held.slab
    tier.dram.unpin([frame for frame in pinned if frame])
    waiting.join()
    assert results[0]
    assert tier.here(TEAM, range(1)) == [0]


def test_open_frames_count_for_their_namespace() -> None:
    tier = SharedTier(1, most=2)
    tier.put(TEAM, 0)
    first = tier.dram.open_frames.open(ONE_UNIT, TEAM)
    assert first is not None
    assert tier.used(TEAM) == 2
    second = tier.dram.open_frames.open(ONE_UNIT, TEAM)
    assert second is not None
    assert (tier.used(TEAM), tier.here(TEAM, range(1))) == (2, [])
    assert tier.dram.open_frames.open(ONE_UNIT, TEAM) is None
    claim = tier.dram.open_frames.adopt(first, ChunkId(TEAM, key(5)))
    assert claim.is_new
    assert tier.used(TEAM) == 2
    tier.dram.open_frames.close(second)
    tier.dram.abandon(claim.frame, Reason.INTERNAL)
    assert tier.used(TEAM) == 0


def test_the_free_buffer_is_not_made_of_guaranteed_shares() -> None:
    tier = SharedTier(1, sure=10)
    for number in range(10):
        tier.put(TEAM, number)
        tier.put(ANY, number)
    tier.dram.hints.free_up(15 * UNIT_BYTES)
    assert tier.here(TEAM, range(10)) == list(range(10))
    assert tier.here(ANY, range(10)) == []


def test_what_becomes_guaranteed_in_a_slab_that_is_drained_stays() -> None:
    tier = SharedTier(2, sure=10)
    frames: dict[int, Frame] = {}
    for number in range(2 * PER_SLAB):
        is_team = number < 5 or PER_SLAB <= number < PER_SLAB + 10
        frame = tier.put(TEAM if is_team else ANY, number)
        assert frame
        frames[number] = frame
        assert tier.dram.pin(frame.chunk)
    with waiting_put(tier):
        wait_until(lambda: tier.dram._draining == frames[0].slab)
        for number in range(PER_SLAB, PER_SLAB + 5):
            tier.dram.drop(frames[number].chunk)
            tier.dram.unpin([frames[number]])
        assert tier.used(TEAM) == 10
        tier.dram.unpin([frames[number] for number in range(5)])
        assert tier.here(TEAM, range(5)) == list(range(5))


def test_for_a_namespace_at_its_limit_no_slab_is_drained() -> None:
    tier = SharedTier(2, most=2)
    for number in range(10):
        tier.put(ANY, number)
    opened = [tier.dram.open_frames.open(ONE_UNIT, TEAM) for _ in range(2)]
    assert all(opened)
    assert tier.put(TEAM, 0, units=2, timeout_s=0.2) is None
    assert tier.here(ANY, range(10)) == list(range(10))
