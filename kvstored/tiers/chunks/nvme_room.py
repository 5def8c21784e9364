"""Makes room on the devices by evictions, in rounds."""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from itertools import islice

from kvstored.counters import Counters
from kvstored.deadlines import remaining_s
from kvstored.format.geometry import Extent
from kvstored.format.identity import ChunkId
from kvstored.store.space.chunk_table import ABSENT, ChunkTable
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.chunks.device_ages import DeviceAges
from kvstored.tiers.chunks.nvme_victims import DeviceVictims, class_bytes_in, forget
from kvstored.tiers.policy.bundles import parts
from kvstored.tiers.policy.lifetimes import Lifetimes
from kvstored.tiers.policy.shares import OTHERS, TierShares
from kvstored.turnstile import TURNSTILE
from kvstored_contract.reasons import Reason

TOUCHED_AT_ONCE = 256
"""Uses that are noted under one hold of the lock: look-ups of others wait for it."""

ROUNDS_MAX = 8
"""Rounds of eviction for one chunk; pins can make a round useless."""


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
    """Knows all chunks on the devices, and evicts what ``nvme_victims`` chooses.

    Thread-safe. The table's lock
    is not held while the index or a device is asked, that of evictions is while the index is;
    nobody waits for a commit with a lock in hand. What was not used for too long, ``ages`` knows.

    ``shares`` counts the chunks of the table, and the extents that ``take_extent`` gave until they
    are given back.
    """

    def __init__(
        self,
        *,
        table: ChunkTable,
        shares: TierShares[ChunkId],
        counters: Counters,
        lifetimes: Lifetimes | None = None,
    ) -> None:
        self.shares = shares
        self._table = table
        self._policy = shares.policy
        self._table_lock = threading.Lock()
        self.ages = DeviceAges(lifetimes or Lifetimes(), table=table, lock=self._table_lock)
        self._victims = DeviceVictims(
            table=table, shares=shares, lock=self._table_lock, counters=counters
        )
        self._eviction_lock = threading.Lock()
        self._rounds: dict[tuple[int, bytes], _Round] = {}
        """The last round of each size class; that of an index which is short of room has 0 for it.
        A namespace at its limit has rounds of its own."""

    def stored(self, chunk: ChunkId, extent: Extent) -> None:
        """Hears of a chunk that became visible on the devices."""
        with self._table_lock:
            before_bytes = class_bytes_in(self._table, chunk) or 0
            self._table.insert(chunk, extent)
            self._policy.insert(chunk, extent.byte_count)
            self.shares.use.add(chunk.namespace_id, extent.byte_count - before_bytes)

    def used(self, chunks: Iterable[ChunkId]) -> None:
        """Hears of a use, from whichever tier."""
        used = list(chunks)
        for start in range(0, len(used), TOUCHED_AT_ONCE):
            with self._table_lock:
                self._policy.touch(used[start : start + TOUCHED_AT_ONCE])

    def used_together(self, chunks: Sequence[ChunkId], *, before: int | None = None) -> None:
        """Hears that a sequence uses chunks, in its order: they go together from now on.

        With ``before`` it did so when the table's clock was not so far: that is no use, and says
        nothing of what was used since.
        """
        for part in parts(chunks, TOUCHED_AT_ONCE):
            with self._table_lock:
                if before is None:
                    self._policy.touch(part, together=True)
                else:
                    identities = [chunk.encode() for chunk in part]
                    self._table.put_together(identities, before=before)
            if before is not None:
                # Else a read ends here, whose thread has others to serve.
                TURNSTILE.give_way()

    def hint(self, places: Mapping[ChunkId, int | None]) -> None:
        """Hears which chunks have another place in the queue of waiting requests."""
        # Of a sequence that leaves the queue the last chunk is used first: so it goes first.
        changed = reversed(tuple(places.items()))
        while part := dict(islice(changed, TOUCHED_AT_ONCE)):
            with self._table_lock:
                self._policy.hint(part)
            TURNSTILE.give_way()

    def removed(self, chunk: ChunkId) -> None:
        """Hears of a chunk that is gone."""
        with self._table_lock:
            forget(self._table, self.shares, chunk)

    def are_stored(self, chunks: Sequence[ChunkId], *, without: Collection[int] = ()) -> list[bool]:
        """Which chunks are on the devices, those of the devices ``without`` left out.

        Asks neither the index nor a device.
        """
        found: list[bool] = []
        for part in TURNSTILE.parts(chunks, TOUCHED_AT_ONCE):
            identities = [chunk.encode() for chunk in part]
            with self._table_lock:
                found += [
                    row != ABSENT and (not without or self._table.device(row) not in without)
                    for row in self._table.rows(identities)
                ]
        return found

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

    def give_back(self, namespace_id: bytes, class_bytes: int) -> None:
        """Hears that an extent of ``take_extent`` holds a chunk of the table now, or is free."""
        with self._table_lock:
            self.shares.use.add(namespace_id, -class_bytes)

    def take_extent(
        self,
        store: ChunkStore,
        class_bytes: int,
        device_index: int,
        *,
        namespace_id: bytes,
        deadline: float,
    ) -> Extent | Reason:
        """Allocates an extent, evicting as much as that and its entry in the index need.

        It counts for the namespace until ``give_back``. Waits until the evictions are committed,
        and at most until ``deadline``: then it answers DEADLINE, and what was evicted makes room
        for others. STORE_FULL says that everything that could make room is pinned or another's, or
        the remaining devices have failed, or that the namespace may never have so much. Raises
        IndexFailure.
        """
        own_rounds = 0
        while True:
            group = self._group(store, namespace_id, class_bytes)
            past = self._rounds.get(group)
            if past is not None and not past.is_over:
                past = None
            if group == (class_bytes, OTHERS):
                if not self._reserve(namespace_id, class_bytes):
                    continue
                found: Extent | Reason = Reason.INTERNAL
                try:
                    found = store.extents.allocate(class_bytes, device_index, deadline=deadline)
                finally:
                    if isinstance(found, Reason):
                        self.give_back(namespace_id, class_bytes)
                if found is not Reason.STORE_FULL:
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
                    current = self._begin_round(store, class_bytes, namespace_id, group)
            finally:
                self._eviction_lock.release()
            if current is None:
                return Reason.STORE_FULL
            if not current.wait(deadline):
                return Reason.DEADLINE

    def _may_find_room(self, store: ChunkStore, namespace_id: bytes, class_bytes: int) -> bool:
        """Whether any evictions could make room: in vain everything would go."""
        if len(store.failures.devices) == len(store.device_set.devices):
            return False
        use = self.shares.use
        limit_bytes = use.quotas.of(use.account(namespace_id)).limit_bytes
        return limit_bytes is None or class_bytes <= limit_bytes

    def _group(self, store: ChunkStore, namespace_id: bytes, class_bytes: int) -> tuple[int, bytes]:
        """Whose rounds make the room that is wanted now."""
        with self._table_lock:
            if self.shares.use.excess_bytes(namespace_id, class_bytes):
                return class_bytes, namespace_id
        return 0 if store.is_index_short else class_bytes, OTHERS

    def _reserve(self, namespace_id: bytes, class_bytes: int) -> bool:
        """Counts an extent for a namespace; False at its limit."""
        with self._table_lock:
            if self.shares.use.excess_bytes(namespace_id, class_bytes):
                return False
            self.shares.use.add(namespace_id, class_bytes)
        return True

    def _begin_round(
        self, store: ChunkStore, class_bytes: int, namespace_id: bytes, group: tuple[int, bytes]
    ) -> _Round | None:
        """Evicts what makes room; a round that others began where nothing is left to evict."""
        if not self._may_find_room(store, namespace_id, class_bytes):
            return None
        self._rounds = {key: one for key, one in self._rounds.items() if not one.is_over}
        if group == (class_bytes, OTHERS) or group[0] == 0:
            victims = self._victims.for_room(store, class_bytes, namespace_id)
        else:
            victims = self._victims.above_limit(store, class_bytes, namespace_id)
        if not victims.chunks:
            return next(iter(self._rounds.values()), None)
        current = self._rounds[group] = _Round(
            store.evict(victims.chunks, is_whole=victims.is_whole)
        )
        return current
