"""Which chunks on the devices go for others.

The oldest chunks are those that the policy of an account gives up first. A namespace at its limit
gives up its own; whatever goes for a namespace leaves the guaranteed shares of all others alone.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress, islice
from math import ceil
from typing import NamedTuple

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.store.space.chunk_table import ABSENT, HELD, ChunkTable
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.tiers.policy.shares import TierShares

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
evicts its own oldest chunks if they are among the oldest of all, and takes over a slab
that is older than these if not.
"""

OLD_SHARE = 0.9
"""Part of a slab's chunks that must be old for the slab to be.

Chunks of all ages lie in one slab, because extents are used again one by one. With less, a class
that has a few old chunks would lose many that were used lately; with all of them, one that is read
now and then would keep a slab for ever.
"""

OLD_SLABS_LOOKED_AT = 8
"""Slabs whose chunks are looked at to find an old one; how old others were is remembered."""

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


class LateUses(NamedTuple):
    """How young the chunks of a slab are: when the most of them, and the last one, were used."""

    most: int = 0
    """The time by which OLD_SHARE of them had their last use."""
    last: int = 0

    @classmethod
    def of(cls, times: Sequence[int]) -> "LateUses":
        """By the times of all chunks of a slab."""
        if not times:
            return cls()
        ascending = sorted(times)
        return cls(ascending[ceil(OLD_SHARE * len(times)) - 1], ascending[-1])

    def is_old(self, before: int, now: int) -> bool:
        """Whether the most are older than ``before``, and none is half as young as that.

        Where a class has but what it was just given, nearly any slab is old enough; where it has
        its share, what others have used lately keeps their slabs.
        """
        return self.most < before and self.last < (before + now) // 2


class DeviceVictims:
    """Chooses chunks of a table, which ``lock`` guards. Thread-safe.

    That lock is not held while the index is asked.
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
        self._late_uses: dict[tuple[int, int], LateUses] = {}
        """Of the slabs that were looked at, by number and size class: uses make them later."""

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
        3. A slab of another class, nearly all of it older than what the class has, and nothing
           of it used lately.
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
            stranded_slabs = table_slabs.stranded(class_bytes, STRANDED_MAX)
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
        old = self._old_slabs(slabs, before=own[0]) if own else []
        if whole := self._whole_slab(store, old, namespace_id):
            return Victims(whole, is_whole=True)
        if allowed := self._allowed(namespace_id, own):
            return Victims(allowed)
        if whole := self._whole_slab(store, slabs, namespace_id):
            return Victims(whole, is_whole=True)
        # A hint pins nothing: where nothing else is left, what waits goes too.
        whole = self._whole_slab(store, slabs, namespace_id, spares_waiting=False)
        return Victims(whole, is_whole=True)

    def _old_slabs(
        self, slabs: Iterable[tuple[int, int]], *, before: ChunkId
    ) -> list[tuple[int, int]]:
        """The first of some slabs that are old beside a chunk; at most one.

        Looks at the chunks of a few, and at those of a slab once only as long as it is too young.
        """
        looked_at = 0
        with self._table_lock:
            (row,) = self._table.rows([before.encode()])
            limit = 0 if row == ABSENT else self._table.times.of(row)
            now = self._table.clock
        for slab in slabs:
            with self._table_lock:
                number = self._table.slabs.number(*slab)
                key = number, self._table.slabs.class_bytes_of(number)
                if not self._late_uses.get(key, LateUses()).is_old(limit, now):
                    continue
                rows = self._table.columns.rows_in_slab(number)
                late = LateUses.of([self._table.times.of(row) for row in rows])
                # What waits now may be old again when nobody waits for it.
                if late.last < HELD:
                    self._late_uses[key] = late
            if late.is_old(limit, now):
                return [slab]
            looked_at += 1
            if looked_at == OLD_SLABS_LOOKED_AT:
                break
        return []

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
                may_go = not is_wanted and self._may_all_go(number, chunks, namespace_id)
            if chunks and may_go and not any(map(store.pins.is_pinned, chunks)):
                return chunks
            looked_at += can_be_empty
            if looked_at == SLABS_LOOKED_AT_MAX:
                break
        return []

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
            with self._table_lock:
                victims = self._policy.of(account).victims(class_bytes)
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
                    forget(self._table, self._shares, chunk, time=time)
            usable = [
                chunk
                for (chunk, _), record in found
                if record is not None and not store.pins.is_pinned(chunk)
            ]
            if usable or not gone:
                return usable
