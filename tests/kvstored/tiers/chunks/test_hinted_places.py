"""Tiers hear of many places in parts, and let others pass between these."""

import threading

import numpy as np
import pytest

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.store.space.slab_geometry import SlabGeometry
from kvstored.tiers.chunks.frame_hints import HINTED_AT_ONCE, FrameHints
from kvstored.tiers.chunks.nvme_room import TOUCHED_AT_ONCE, NvmeRoom
from kvstored.tiers.policy.look_ahead import LookAheadPolicy
from kvstored.tiers.policy.lru import LruPolicy
from kvstored.tiers.policy.shares import TierShares
from kvstored.turnstile import TURNSTILE

PART_COUNT = 5
PLACES = {
    ChunkId(b"n" * 16, number.to_bytes(32, "big")): number
    for number in range(PART_COUNT * HINTED_AT_ONCE)
}


class Turns:
    """Counts the turns that others had, all of them without the tier's lock taken."""

    def __init__(self, lock: threading.Lock) -> None:
        self.count = 0
        self._lock = lock

    def has_work(self) -> bool:
        assert not self._lock.locked()
        self.count += 1
        return False


def test_dram_heard_of_all_places_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: its lock was let go between parts, but the interpreter was not."""
    lock = threading.Lock()
    policy: LookAheadPolicy[ChunkId] = LookAheadPolicy(LruPolicy())
    hints = FrameHints(room=threading.Condition(lock), policy=policy, evict=lambda: 0)
    turns = Turns(lock)
    monkeypatch.setattr(TURNSTILE, "_has_work", turns.has_work)
    hints.hint(PLACES)
    assert turns.count == PART_COUNT
    assert all(map(hints.is_queued, PLACES))


def test_the_devices_heard_of_all_places_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: as in DRAM."""
    table = ChunkTable(SlabGeometry(65536, (1,), 0, 4096), generator=np.random.default_rng(1))
    policy: LookAheadPolicy[ChunkId] = LookAheadPolicy(LruPolicy())
    room = NvmeRoom(table=table, shares=TierShares.undivided(policy), counters=Counters())
    turns = Turns(room._table_lock)
    monkeypatch.setattr(TURNSTILE, "_has_work", turns.has_work)
    room.hint(PLACES)
    assert TOUCHED_AT_ONCE == HINTED_AT_ONCE
    assert turns.count == PART_COUNT
    assert all(map(policy.is_queued, PLACES))
