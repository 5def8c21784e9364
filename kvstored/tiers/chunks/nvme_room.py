"""Makes room on the devices by evicting what the policy gives up first."""

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from itertools import islice
from typing import NamedTuple

from kvstored.counters import Counters
from kvstored.deadlines import remaining_s
from kvstored.format.extent import Extent
from kvstored.format.identity import ChunkId
from kvstored.store.space.chunk_table import ABSENT, ChunkTable
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.policy.protocol import EvictionPolicy
from kvstored_contract.reasons import Reason

VICTIMS_PER_ROUND = 16
"""Chunks of one size class that are evicted together, because a commit costs the same."""

INDEX_VICTIMS_MAX = 1024
"""Chunks that are evicted together when the index has so many too many, and can do it."""

TOUCHED_AT_ONCE = 256
"""Uses that are noted under one hold of the lock: look-ups of others wait for it."""

VICTIMS_LOOKED_AT = (4 * VICTIMS_PER_ROUND, 1024)
"""Oldest chunks that are looked at, and how many when all of these are pinned.

Behind the last number the store counts as full.
"""

SLABS_LOOKED_AT_MAX = 64
"""Slabs whose chunks are looked at to empty one of them."""

OLDEST_LOOKED_AT = 256
"""Oldest chunks of all classes among which a class that wants room should have its own."""

STRANDED_MAX = 0.02
"""Share of the devices that may lie in free extents of other classes.

When deletions have stranded more, the emptiest of their slabs is emptied. Else a class
evicts its own oldest chunks if they are among the oldest of all, and takes over the slab
with the largest share of these if not.
"""

ROUNDS_MAX = 8
"""Rounds of eviction for one chunk; pins can make a round useless."""


class _Victims(NamedTuple):
    """Chunks that make room; ``is_whole`` ones only all together."""

    chunks: list[ChunkId]
    is_whole: bool = False


class _Round:
    """Evictions that are under way for a size class, for all that wait for room in it."""

    def __init__(self, evictions: Sequence[Future[bool]]) -> None:
        self._evictions = evictions

    @property
    def is_over(self) -> bool:
        """Whether all of them are committed or have failed."""
        return all(eviction.done() for eviction in self._evictions)

    def wait(self, deadline: float) -> bool:
        """Waits until it is over; False when it is not by the deadline."""
        return not wait(self._evictions, timeout=remaining_s(deadline)).not_done


class NvmeRoom:
    """Knows all chunks on the devices, and evicts them in the order of ``policy``.

    The oldest chunks are those that the policy gives up first. Thread-safe. The table's lock
    is not held while the index or a device is asked, that of evictions is while the index is;
    nobody waits for a commit with a lock in hand.
    """

    def __init__(
        self, *, table: ChunkTable, policy: EvictionPolicy[ChunkId], counters: Counters
    ) -> None:
        self._table = table
        self._policy = policy
        self._counters = counters
        self._table_lock = threading.Lock()
        self._eviction_lock = threading.Lock()
        self._rounds: dict[int, _Round] = {}
        """The last round of each size class; that of an index which is short of room has key 0."""

    def stored(self, chunk: ChunkId, extent: Extent) -> None:
        """Hears of a chunk that became visible on the devices."""
        with self._table_lock:
            self._table.insert(chunk, extent)
            self._policy.insert(chunk, extent.byte_count)

    def used(self, chunks: Iterable[ChunkId]) -> None:
        """Hears of a use, from whichever tier."""
        used = tuple(chunks)
        for start in range(0, len(used), TOUCHED_AT_ONCE):
            with self._table_lock:
                self._policy.touch(used[start : start + TOUCHED_AT_ONCE])

    def hint(self, places: Mapping[ChunkId, int | None]) -> None:
        """Hears which chunks have another place in the queue of waiting requests."""
        changed = tuple(places.items())
        for start in range(0, len(changed), TOUCHED_AT_ONCE):
            with self._table_lock:
                self._policy.hint(dict(changed[start : start + TOUCHED_AT_ONCE]))

    def removed(self, chunk: ChunkId) -> None:
        """Hears of a chunk that is gone."""
        with self._table_lock:
            self._table.remove(chunk)
            self._policy.remove(chunk)

    def are_stored(self, chunks: Sequence[ChunkId], *, without: Collection[int] = ()) -> list[bool]:
        """Which chunks are on the devices, those of the devices ``without`` left out.

        Asks neither the index nor a device.
        """
        identities = [chunk.encode() for chunk in chunks]
        with self._table_lock:
            rows = self._table.rows(identities)
            if without:
                return [row != ABSENT and self._table.device(row) not in without for row in rows]
        return [row != ABSENT for row in rows]

    @property
    def chunk_count(self) -> int:
        """Chunks on the devices."""
        return len(self._table)

    @property
    def row_end(self) -> int:
        """Behind all rows of the table that hold chunks."""
        return self._table.columns.row_end

    def chunks_in_rows(self, first: int, end: int) -> list[ChunkId]:
        """The chunks in rows ``first`` to ``end``, that one excluded; for walks over all."""
        with self._table_lock:
            return self._table.columns.chunks_in_rows(first, end)

    def class_bytes_in_slab(self, device_index: int, slab_index: int) -> int:
        """The size class of the chunks in a slab; 0 when it holds none."""
        slabs = self._table.slabs
        slab = slabs.number(device_index, slab_index)
        with self._table_lock:
            return slabs.class_bytes_of(slab) if slabs.chunk_count(slab) else 0

    def take_extent(
        self, store: ChunkStore, class_bytes: int, device_index: int, *, deadline: float
    ) -> Extent | Reason:
        """Allocates an extent, evicting as much as that and its entry in the index need.

        Waits until the evictions are committed, and at most until ``deadline``: then it
        answers DEADLINE, and what was evicted makes room for others. STORE_FULL says that
        everything that could make room is pinned or the remaining devices have failed.
        Raises IndexFailure.
        """
        own_rounds = 0
        while True:
            group = 0 if store.is_index_short else class_bytes
            past = self._rounds.get(group)
            if past is not None and not past.is_over:
                past = None
            if (
                group
                and (found := store.extents.allocate(class_bytes, device_index, deadline=deadline))
                is not Reason.STORE_FULL
            ):
                return found
            left_s = remaining_s(deadline)
            if not self._eviction_lock.acquire(timeout=-1 if left_s is None else left_s):
                return Reason.DEADLINE
            try:
                current = self._rounds.get(group)
                if current is None or current is past:
                    if own_rounds == ROUNDS_MAX:
                        return Reason.STORE_FULL
                    own_rounds += 1
                    current = self._begin_round(store, class_bytes, group)
            finally:
                self._eviction_lock.release()
            if current is None:
                return Reason.STORE_FULL
            if not current.wait(deadline):
                return Reason.DEADLINE

    def _begin_round(self, store: ChunkStore, class_bytes: int, group: int) -> _Round | None:
        """Evicts what makes room; a round that others began where nothing is left to evict."""
        self._rounds = {key: one for key, one in self._rounds.items() if not one.is_over}
        victims = self._victims(store, class_bytes)
        if not victims.chunks:
            return next(iter(self._rounds.values()), None)
        current = self._rounds[group] = _Round(
            store.evict(victims.chunks, is_whole=victims.is_whole)
        )
        return current

    def _victims(self, store: ChunkStore, class_bytes: int) -> _Victims:
        """Chunks whose deletion makes room for a class: the first rule that finds some counts.

        0. The index is short of room: the oldest of all.
        1. Too much lies stranded in free extents of other classes: the emptiest of their
           slabs is emptied, and then fits any class.
        2. The class has chunks of its own among the oldest of all: these.
        3. The slab of another class with the largest share of the oldest of all is emptied.
        4. The oldest chunks of the class, however young.
        """
        if store.is_index_short:
            excess = min(store.index_excess_chunks, INDEX_VICTIMS_MAX)
            count = max(VICTIMS_PER_ROUND, excess)
            victims = self._oldest(store, None, count)
            self._counters.add("evicted_for_index_chunks", len(victims))
            return _Victims(victims)
        oldest = self._unpinned(store, None, OLDEST_LOOKED_AT)
        with self._table_lock:
            table_slabs = self._table.slabs
            stranded_slabs = table_slabs.stranded(class_bytes, STRANDED_MAX)
            places = [
                (chunk, slab) for chunk in oldest if (slab := self._table.slab(chunk)) is not None
            ]
            old_counts = Counter(table_slabs.place(slab) for _, slab in places)
            own = [
                chunk for chunk, slab in places if table_slabs.class_bytes_of(slab) == class_bytes
            ]
        if own and not stranded_slabs:
            return _Victims(own[:VICTIMS_PER_ROUND])

        def old_share(slab: tuple[int, int]) -> float:
            return old_counts[slab] / max(store.extents.allocator.used_count(*slab), 1)

        slabs = stranded_slabs or sorted(old_counts, key=old_share, reverse=True)
        if whole := self._whole_slab(store, slabs):
            return _Victims(whole, is_whole=True)
        if own := self._oldest(store, class_bytes, VICTIMS_PER_ROUND):
            return _Victims(own)
        # A hint pins nothing: where nothing else is left, what waits goes too.
        return _Victims(self._whole_slab(store, slabs, spares_waiting=False), is_whole=True)

    def _oldest(self, store: ChunkStore, class_bytes: int | None, count: int) -> list[ChunkId]:
        """At most ``count`` of the oldest chunks of a class, or of all, that may be evicted."""
        for looked_at in VICTIMS_LOOKED_AT:
            victims = self._unpinned(store, class_bytes, max(looked_at, count))
            if victims:
                return victims[:count]
        return []

    def _whole_slab(
        self, store: ChunkStore, slabs: Iterable[tuple[int, int]], *, spares_waiting: bool = True
    ) -> list[ChunkId]:
        """All chunks of the first of some slabs that can become empty: then it fits any class.

        With ``spares_waiting`` no slab with chunks that waiting requests need.
        """
        looked_at = 0
        for slab in slabs:
            with self._table_lock:
                # Else something that cannot be evicted lies there: it is in quarantine, is
                # being written, or was deleted while somebody had it pinned.
                number = self._table.slabs.number(*slab)
                can_be_empty = self._table.slabs.chunk_count(number) == (
                    store.extents.allocator.used_count(*slab)
                )
                columns = self._table.columns
                rows = columns.rows_in_slab(number) if can_be_empty else []
                chunks = [columns.chunk(row) for row in rows]
                is_wanted = spares_waiting and any(map(self._policy.is_queued, chunks))
            if chunks and not is_wanted and not any(map(store.pins.is_pinned, chunks)):
                return chunks
            looked_at += can_be_empty
            if looked_at == SLABS_LOOKED_AT_MAX:
                break
        return []

    def _unpinned(
        self, store: ChunkStore, class_bytes: int | None, looked_at_max: int
    ) -> list[ChunkId]:
        """Those of the oldest chunks of a class, or of all, that may be evicted.

        What is not visible any more, because its device failed, leaves the table here:
        it would stand in front of the others for ever.
        """
        while True:
            with self._table_lock:
                victims = self._policy.victims(class_bytes)
                staying = (chunk for chunk in victims if not store.is_being_deleted(chunk))
                chunks = list(islice(staying, looked_at_max))
                rows = self._table.rows([chunk.encode() for chunk in chunks])
                uses = [self._table.use(row) for row in rows]
            records = store.find([chunk for chunk, _ in uses])
            found = list(zip(uses, records, strict=True))
            # What began to leave meanwhile stays in the table until that is committed.
            gone = [
                use
                for use, record in found
                if record is None and not store.is_being_deleted(use[0])
            ]
            with self._table_lock:
                for chunk, time in gone:
                    # It may have been stored again meanwhile.
                    if self._table.remove(chunk, time=time):
                        self._policy.remove(chunk)
            usable = [
                chunk
                for (chunk, _), record in found
                if record is not None and not store.pins.is_pinned(chunk)
            ]
            if usable or not gone:
                return usable
