"""Which chunks on the devices go for others.

The oldest chunks are those that the policy of an account gives up first. A namespace at its limit
gives up its own; whatever goes for a namespace leaves the guaranteed shares of all others alone.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, compress, islice
from typing import NamedTuple

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.store.space.chunk_table import ABSENT, ChunkTable
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.policy.shares import TierShares
from kvstored.tiers.table_looks import TableLooks

VICTIMS_PER_ROUND = 16
"""Chunks of one size class that are evicted together, because a commit costs the same."""

INDEX_VICTIMS_MAX = 1024
"""Chunks that are evicted together when the index has so many too many, and can do it."""

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
evicts its own oldest chunks if they are among the oldest of all. If not, it takes over a slab
whose chunks are worth less than these.
"""

SLABS_COMPARED = 8
"""Slabs whose chunks are looked at to find one that is worth less."""

LOOK_AGAIN_SHARE = 1 / 16
"""A slab that was worth too much is looked at again after this share of the time that the oldest
chunk of the class which wanted room has rested."""

LIMIT_VICTIMS_MAX = 1024
"""Chunks that a namespace gives up together at most, after its limit was lowered."""
LIMIT_SHARE_PER_ROUND = 1 / 16
"""Part of its limit that a namespace gives up together, if it has to give up anything."""


class Victims(NamedTuple):
    """Chunks that make room; ``is_whole`` ones only all together."""

    chunks: list[ChunkId]
    is_whole: bool = False


def class_bytes_in(table: ChunkTable, chunk: ChunkId) -> int | None:
    """The size class of a chunk on the devices; None when it is not there."""
    slab = table.slab(chunk)
    return None if slab is None else table.slabs.class_bytes_of(slab)


def forget(
    table: ChunkTable, shares: TierShares[ChunkId], chunk: ChunkId, *, time: int | None = None
) -> None:
    """Takes a chunk out of the table, with ``time`` only if that is when it was used last."""
    class_bytes = class_bytes_in(table, chunk)
    if class_bytes is not None and table.remove(chunk, time=time):
        shares.policy.remove(chunk)
        shares.use.add(chunk.namespace_id, -class_bytes)


def worth(times: Sequence[int], now: int, *, within: int) -> float:
    """What some chunks are worth that were used last at ``times``: between 0 and 1 each.

    One that has rested for a time is used within as long again with a chance of one half, and one
    that was just used for certain; so is one that waits for a request (``HELD``). The square of
    that chance counts: of much that is old one half is not worth as much as a little that is sure.
    """
    return sum((within / (max(0, now - time) + within)) ** 2 for time in times)


class DeviceVictims:
    """Chooses chunks of a table, which ``lock`` guards. One thread at a time.

    That lock is not held while the index is asked, nor for all rows at once (``TableLooks``).
    """

    def __init__(
        self,
        *,
        table: ChunkTable,
        shares: TierShares[ChunkId],
        lock: threading.Lock,
        counters: Counters,
    ) -> None:
        self._table = table
        self._shares = shares
        self._policy = shares.policy
        self._table_lock = lock
        self._counters = counters
        self._looks = TableLooks(table, lock)
        self._looked_at: dict[int, tuple[int, int, int]] = {}
        """Of each slab that was found to be worth too much: its size class, the class that wanted
        it last, and when. One of each slab, so that it grows no further."""

    def above_limit(self, store: ChunkStore, class_bytes: int, namespace_id: bytes) -> Victims:
        """Chunks of a namespace that go until it may have another one of a class."""
        use = self._shares.use
        account = use.account(namespace_id)
        limit = use.quotas.of(account).limit_bytes or 0
        with self._table_lock:
            goal_bytes = max(
                use.excess_bytes(namespace_id, class_bytes),
                min(VICTIMS_PER_ROUND * class_bytes, int(limit * LIMIT_SHARE_PER_ROUND)),
            )
        estimate = min(max(VICTIMS_PER_ROUND, goal_bytes // class_bytes + 1), LIMIT_VICTIMS_MAX)
        # They may be much smaller than the chunk that is to come.
        for count in (estimate, LIMIT_VICTIMS_MAX):
            chunks = self._oldest(store, [account], None, count)
            with self._table_lock:
                sizes = [size for _, size in self._sizes(chunks)]
            if sum(sizes) >= goal_bytes:
                break
        before = [0, *accumulate(sizes)]
        return Victims(
            [chunk for chunk, freed in zip(chunks, before, strict=False) if freed < goal_bytes]
        )

    def for_room(self, store: ChunkStore, class_bytes: int, namespace_id: bytes) -> Victims:
        """Chunks whose deletion makes room for a class: the first rule that finds some counts.

        Only chunks that may go for the namespace.

        0. The index is short of room: the oldest of all.
        1. Too much lies stranded in free extents of other classes: the emptiest of their
           slabs is emptied, and then fits any class.
        2. The class has chunks of its own among the oldest of all: these.
        3. A slab of another class whose chunks are worth less, for their bytes, than the oldest of
           the class.
        4. The oldest chunks of the class, however young.
        5. The slab of another class with the largest share of the oldest of all.
        """
        with self._table_lock:
            givers = self._shares.use.givers(namespace_id, class_bytes)
        if store.is_index_short:
            excess = min(store.index_excess_chunks, INDEX_VICTIMS_MAX)
            count = max(VICTIMS_PER_ROUND, excess)
            victims = self._allowed(namespace_id, self._oldest(store, givers, None, count))
            self._counters.add("evicted_for_index_chunks", len(victims))
            return Victims(victims)
        oldest = self._first_unpinned(store, givers, None, OLDEST_LOOKED_AT)
        with self._table_lock:
            table_slabs = self._table.slabs
            failed = store.failures.devices
            stranded_slabs = table_slabs.stranded(class_bytes, STRANDED_MAX, without=failed)
            places = [
                (chunk, slab) for chunk in oldest if (slab := self._table.slab(chunk)) is not None
            ]
            old_counts = Counter(table_slabs.place(slab) for _, slab in places)
            own = [
                chunk for chunk, slab in places if table_slabs.class_bytes_of(slab) == class_bytes
            ]
        if own and not stranded_slabs:
            return Victims(self._allowed(namespace_id, own[:VICTIMS_PER_ROUND]))
        if whole := self._whole_slab(store, stranded_slabs, namespace_id):
            return Victims(whole, is_whole=True)

        def old_share(slab: tuple[int, int]) -> float:
            return old_counts[slab] / max(store.extents.allocator.used_count(*slab), 1)

        slabs = sorted(old_counts, key=old_share, reverse=True)
        return self._own_or_slab(store, givers, slabs, class_bytes, namespace_id)

    def _own_or_slab(
        self,
        store: ChunkStore,
        givers: Sequence[bytes],
        slabs: Sequence[tuple[int, int]],
        class_bytes: int,
        namespace_id: bytes,
    ) -> Victims:
        """The last three rules of ``for_room``; ``slabs`` in the order in which they may go."""
        own = self._oldest(store, givers, class_bytes, VICTIMS_PER_ROUND)
        worth_less = self._worth_less(slabs, own, class_bytes) if own else ()
        if whole := self._whole_slab(store, worth_less, namespace_id):
            return Victims(whole, is_whole=True)
        if allowed := self._allowed(namespace_id, own):
            return Victims(allowed)
        if whole := self._whole_slab(store, slabs, namespace_id):
            return Victims(whole, is_whole=True)
        # A hint pins nothing: where nothing else is left, what waits goes too.
        whole = self._whole_slab(store, slabs, namespace_id, spares_waiting=False)
        return Victims(whole, is_whole=True)

    def _worth_less(
        self, slabs: Iterable[tuple[int, int]], own: Sequence[ChunkId], class_bytes: int
    ) -> Iterator[tuple[int, int]]:
        """Those of some slabs that are worth less than a class's oldest chunks.

        Looks at a few, and at one that was worth too much not again soon.
        """
        with self._table_lock:
            rows = self._table.rows([chunk.encode() for chunk in own])
            times = [self._table.times.of(row) for row in rows if row != ABSENT]
            now = self._table.clock
        if not times:
            return
        rested = max(1, now - min(times))
        own_worth = worth(times, now, within=rested) / (len(times) * class_bytes)
        for slab in islice(self._looked_at_again(slabs, class_bytes, now, rested), SLABS_COMPARED):
            number = self._table.slabs.number(*slab)
            rows = self._looks.rows_in_slab(number)
            with self._table_lock:
                used = [self._table.times.of(row) for row in self._looks.still_there(rows, number)]
                slab_worth = worth(used, now, within=rested)
                is_less = slab_worth < own_worth * self._table.geometry.slab_bytes
                if not is_less:
                    self._looked_at[number] = (*self._look(number, class_bytes), now)
            if is_less:
                yield slab

    def _looked_at_again(
        self, slabs: Iterable[tuple[int, int]], class_bytes: int, now: int, rested: int
    ) -> Iterator[tuple[int, int]]:
        for slab in slabs:
            with self._table_lock:
                number = self._table.slabs.number(*slab)
                *look, before = self._looked_at.get(number, (0, 0, 0))
                is_known = tuple(look) == self._look(number, class_bytes)
            if not is_known or now - before >= LOOK_AGAIN_SHARE * rested:
                yield slab

    def _look(self, slab: int, class_bytes: int) -> tuple[int, int]:
        return self._table.slabs.class_bytes_of(slab), class_bytes

    def _oldest(
        self, store: ChunkStore, accounts: Sequence[bytes], class_bytes: int | None, count: int
    ) -> list[ChunkId]:
        """At most ``count`` of the oldest chunks of a class, or of all, that may be evicted.

        Those of the first account that has any.
        """
        for looked_at in VICTIMS_LOOKED_AT:
            victims = self._first_unpinned(store, accounts, class_bytes, max(looked_at, count))
            if victims:
                return victims[:count]
        return []

    def _first_unpinned(
        self,
        store: ChunkStore,
        accounts: Sequence[bytes],
        class_bytes: int | None,
        looked_at_max: int,
    ) -> list[ChunkId]:
        found = (self._unpinned(store, account, class_bytes, looked_at_max) for account in accounts)
        return next((chunks for chunks in found if chunks), [])

    def _allowed(self, namespace_id: bytes, chunks: Sequence[ChunkId]) -> list[ChunkId]:
        """Those of some chunks that may go for a namespace, one after the other."""
        with self._table_lock:
            may_go = self._shares.use.may_go(namespace_id, self._sizes(chunks))
        return list(compress(chunks, may_go))

    def _sizes(self, chunks: Iterable[ChunkId]) -> list[tuple[bytes, int]]:
        """Namespace and bytes of each; under the table's lock."""
        return [(chunk.namespace_id, class_bytes_in(self._table, chunk) or 0) for chunk in chunks]

    def _whole_slab(
        self,
        store: ChunkStore,
        slabs: Iterable[tuple[int, int]],
        namespace_id: bytes,
        *,
        spares_waiting: bool = True,
    ) -> list[ChunkId]:
        """All chunks of the first of some slabs that can become empty: then it fits any class.

        With ``spares_waiting`` no slab with chunks that waiting requests need.
        """
        looked_at = 0
        for slab in slabs:
            number = self._table.slabs.number(*slab)
            with self._table_lock:
                can_be_empty = self._can_be_empty(store, slab)
            rows = self._looks.rows_in_slab(number) if can_be_empty else []
            with self._table_lock:
                columns = self._table.columns
                chunks = [columns.chunk(row) for row in self._looks.still_there(rows, number)]
                # Chunks may have come or gone meanwhile: then these are not the whole slab.
                is_whole = len(chunks) == self._table.slabs.chunk_count(number) and (
                    self._can_be_empty(store, slab)
                )
                is_wanted = spares_waiting and any(map(self._policy.is_queued, chunks))
                may_go = not is_wanted and self._may_all_go(number, chunks, namespace_id)
            if chunks and is_whole and may_go and not any(map(store.pins.is_pinned, chunks)):
                return chunks
            looked_at += can_be_empty
            if looked_at == SLABS_LOOKED_AT_MAX:
                break
        return []

    def _can_be_empty(self, store: ChunkStore, slab: tuple[int, int]) -> bool:
        """Whether all that a slab holds are chunks of the table; under the table's lock.

        Else something that cannot be evicted lies there: it is in quarantine, is being written, or
        was deleted while somebody had it pinned.
        """
        slabs = self._table.slabs
        used_count: int = store.extents.allocator.used_count(*slab)
        return slabs.chunk_count(slabs.number(*slab)) == used_count

    def _may_all_go(self, slab: int, chunks: Sequence[ChunkId], namespace_id: bytes) -> bool:
        """Whether nobody's guaranteed share keeps a chunk of a slab; under the table's lock."""
        if not self._shares.use.is_divided:
            return True
        class_bytes = self._table.slabs.class_bytes_of(slab)
        sizes = [(chunk.namespace_id, class_bytes) for chunk in chunks]
        return all(self._shares.use.may_go(namespace_id, sizes))

    def _unpinned(
        self, store: ChunkStore, account: bytes, class_bytes: int | None, looked_at_max: int
    ) -> list[ChunkId]:
        """Those of an account's oldest chunks of a class, or of all, that may be evicted.

        What is not visible any more, because its device failed, leaves the table here:
        it would stand in front of the others for ever.
        """
        while True:
            victims = self._policy.of(account)
            uses = self._looks.first(
                victims, class_bytes, looked_at_max, is_leaving=store.is_being_deleted
            )
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
                    forget(self._table, self._shares, chunk, time=time)
            usable = [
                chunk
                for (chunk, _), record in found
                if record is not None and not store.pins.is_pinned(chunk)
            ]
            if usable or not gone:
                return usable
