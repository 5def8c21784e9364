"""Rounds of eviction look at many rows of the table, and others use it meanwhile."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from kvstored.counters import Counters
from kvstored.format.identity import CHUNK_ID_BYTES, NAMESPACE_ID_BYTES, ChunkId, namespace_id
from kvstored.store.space.chunk_columns import ChunkColumns
from kvstored.store.space.chunk_table import SEGMENT_ROWS, ChunkTable
from kvstored.store.space.slab_census import SlabCensus
from kvstored.store.space.slab_geometry import POSITION_BITS, SlabGeometry
from kvstored.store.space.use_times import UseTimes
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.accounts import device_shares
from kvstored.tiers.chunks.nvme_victims import DeviceVictims
from kvstored.tiers.namespaces import NamespaceLimits
from kvstored.tiers.policy import use_order
from kvstored.tiers.policy.retention import TableRetention
from kvstored.tiers.policy.shares import Quota
from kvstored.tiers.table_looks import SEGMENTS_AT_ONCE

SEGMENTS = 2 * SEGMENTS_AT_ONCE + 1
ROWS = SEGMENTS * SEGMENT_ROWS
SMALL = 4096
OTHER_CLASS = 8192
PER_SLAB = 255
GEOMETRY = SlabGeometry((PER_SLAB + 1) * SMALL, (ROWS // PER_SLAB + 1,), 0, SMALL)
TEAM, ANY = namespace_id("team"), namespace_id("any")
TEAM_STEP = ROWS // 32
"""One row in so many is a chunk of the team, the others are of a namespace without a quota."""
ROWS_PER_HOLD_MAX = SEGMENTS_AT_ONCE * SEGMENT_ROWS


def chunk(row: int) -> ChunkId:
    """The chunk that begins in a row; rows are used in their order."""
    return ChunkId(TEAM if row % TEAM_STEP == 0 else ANY, row.to_bytes(32, "little"))


def large_table() -> ChunkTable:
    numbers = np.arange(ROWS, dtype=np.uint64)
    identities = np.zeros((ROWS, CHUNK_ID_BYTES), np.uint8)
    identities[:, :NAMESPACE_ID_BYTES] = np.frombuffer(ANY, np.uint8)
    identities[::TEAM_STEP, :NAMESPACE_ID_BYTES] = np.frombuffer(TEAM, np.uint8)
    keys = numbers.astype("<u8").view(np.uint8).reshape(-1, 8)
    identities[:, NAMESPACE_ID_BYTES : NAMESPACE_ID_BYTES + 8] = keys
    places = (numbers // PER_SLAB << np.uint64(POSITION_BITS)) + numbers % PER_SLAB
    columns, slabs = ChunkColumns(), SlabCensus(GEOMETRY)
    columns.append(identities, places, numbers + 1)
    slabs.claim_classes(places, np.full(ROWS, SMALL, np.uint64))
    table = ChunkTable(GEOMETRY, columns=columns, slabs=slabs, generator=np.random.default_rng(1))
    table.clock = ROWS + 1
    return table


class Looks:
    """The table's lock, which notes how many rows are looked at under one hold of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows = 0
        self.per_hold: list[int] = []

    def look(self, row_count: int) -> None:
        assert self._lock.locked()
        self._rows += row_count

    def acquire(self) -> bool:
        self._rows = 0
        return self._lock.acquire()

    def release(self) -> None:
        self.per_hold.append(self._rows)
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Scene:
    """Victims of a large table, and a store that has all of its chunks."""

    def __init__(self, *, limit_bytes: int) -> None:
        self.table = large_table()
        self.lock = Looks()
        limits = NamespaceLimits(name="team", devices=Quota(limit_bytes=limit_bytes))
        self.victims = DeviceVictims(
            table=self.table,
            shares=device_shares(self.table, TableRetention.LRU, [limits]),
            lock=cast("threading.Lock", self.lock),
            counters=Counters(),
        )
        slabs = self.table.slabs
        self.store = cast(
            "ChunkStore",
            SimpleNamespace(
                is_index_short=False,
                is_being_deleted=lambda _: False,
                find=lambda chunks: [object()] * len(chunks),
                failures=SimpleNamespace(devices=set()),
                pins=SimpleNamespace(is_pinned=lambda _: False),
                extents=SimpleNamespace(
                    allocator=SimpleNamespace(
                        used_count=lambda *slab: slabs.chunk_count(slabs.number(*slab))
                    )
                ),
            ),
        )

    def in_pauses(self, does: Callable[[], None]) -> None:
        """Others do something whenever a look lets them in."""
        pause = self.table.times.pause

        def paused() -> None:
            pause()
            does()

        self.table.times.pause = paused


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A scene whose lock knows how many rows are looked at."""
    scene = Scene(limit_bytes=32 * SMALL)
    times_of, rows_of = UseTimes.segment, ChunkColumns.rows_in_slab

    def segment(self: UseTimes, number: int, step: int = 1) -> NDArray[np.uint64]:
        found = times_of(self, number, step)
        scene.lock.look(len(found))
        return found

    def rows_in_slab(self: ChunkColumns, slab: int, *segments: Any) -> list[int]:
        count = len(segments[0]) if segments else len(self.segments)
        scene.lock.look(count * SEGMENT_ROWS)
        return rows_of(self, slab, *segments)

    monkeypatch.setattr(UseTimes, "segment", segment)
    monkeypatch.setattr(ChunkColumns, "rows_in_slab", rows_in_slab)
    return scene


def test_a_namespace_at_its_limit_held_the_lock_for_all_rows(counted: Scene) -> None:
    """Bug: look-ups of everybody waited while all rows were told apart by namespace."""
    chunks = counted.victims.above_limit(counted.store, SMALL, TEAM).chunks
    assert chunks[:2] == [chunk(0), chunk(TEAM_STEP)]
    assert {one.namespace_id for one in chunks} == {TEAM}
    assert sum(counted.lock.per_hold) >= ROWS
    # What is left of the sample, the first segment, and the next one, whose times are at hand when
    # there is a pause.
    assert max(counted.lock.per_hold) < 3 * use_order.ROWS_AT_ONCE


def test_who_looked_for_a_whole_slab_held_the_lock_for_all_rows(counted: Scene) -> None:
    """Bug: look-ups of everybody waited for each slab that was looked at."""
    victims = counted.victims.for_room(counted.store, OTHER_CLASS, ANY)
    assert victims.is_whole
    assert set(victims.chunks) == {chunk(row) for row in range(PER_SLAB)}
    assert sum(counted.lock.per_hold) >= ROWS
    assert max(counted.lock.per_hold) <= ROWS_PER_HOLD_MAX


def test_what_others_use_or_delete_meanwhile_goes_last_or_is_no_victim() -> None:
    scene = Scene(limit_bytes=32 * SMALL)
    used, gone = chunk(0), chunk(TEAM_STEP)

    def others() -> None:
        scene.table.touch([used.encode()])
        scene.table.remove(gone)

    scene.in_pauses(others)
    found = scene.victims._unpinned(scene.store, TEAM, None, 32)
    assert found[0] == chunk(2 * TEAM_STEP)
    assert gone not in found
    assert used not in found[:-1]
    # The next look has it where it belongs.
    scene.table.times.pause = lambda: None
    after = scene.victims._unpinned(scene.store, TEAM, None, 32)
    assert after[-1] == used
    assert len(after) == 31


def test_a_look_whose_finds_were_all_used_meanwhile_is_made_again() -> None:
    """Else a namespace whose chunks are all in use would have none to give up."""
    scene = Scene(limit_bytes=32 * SMALL)
    team = [chunk(row).encode() for row in range(0, ROWS, TEAM_STEP)]
    uses = iter(range(2 * SEGMENTS))

    def others() -> None:
        # During the first look.
        if next(uses, None) is not None:
            scene.table.touch(team)

    scene.in_pauses(others)
    assert scene.victims._unpinned(scene.store, TEAM, None, 32) != []


def test_a_slab_that_got_a_chunk_meanwhile_is_not_the_whole_slab() -> None:
    """Else what came would stay in a slab that was given up as empty."""
    scene = Scene(limit_bytes=32 * SMALL)
    table = scene.table
    first = table.columns.rows_in_slab(0)[0]
    position = GEOMETRY.extent(0, 0, 0, SMALL)
    came = ChunkId(ANY, b"x" * 32)
    old = table.columns.chunk(first)
    table.remove(old)

    def others() -> None:
        # The free row is in a part that was looked through already.
        if table.slab(came) is None:
            table.insert(came, position)

    scene.in_pauses(others)
    assert scene.victims._whole_slab(scene.store, [(0, 0)], ANY) == []
    assert came in scene.victims._whole_slab(scene.store, [(0, 0)], ANY)


def test_looks_at_a_slab_were_remembered_for_each_pair_of_classes() -> None:
    """Bug: they grew with the square of the classes that clients make up."""
    victims = Scene(limit_bytes=1).victims
    newest = [(0, ROWS // PER_SLAB - number) for number in range(1, 5)]
    oldest = [chunk(row) for row in range(8)]
    for wanted_bytes in range(SMALL, 10 * SMALL, SMALL):
        assert list(victims._worth_less(newest, oldest, wanted_bytes)) == []
    assert len(victims._looked_at) == len(newest)
    # What was found for this class holds for a while.
    looked_at = dict(victims._looked_at)
    assert list(victims._looked_at_again(newest, wanted_bytes, ROWS + 1, ROWS)) == []
    assert list(victims._looked_at_again(newest, SMALL, ROWS + 1, ROWS)) == newest
    assert victims._looked_at == looked_at
