"""The tiers put together, and what concerns them all: match, pin, delete, failure, the end."""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

from kvstored.counters import Counters
from kvstored.format.identity import ChunkId
from kvstored.io.engine import IoEngine
from kvstored.store.index.index import IndexChange
from kvstored.store.read.reader import Reader, ReaderLimits
from kvstored.store.sequences.sequence_table import SequenceTable
from kvstored.store.space.allocator import Allocator
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.store.write.chunk_store import ChunkStore
from kvstored.store.write.chunk_store_parts import ChunkStoreParts
from kvstored.store.write.committer import Commit, CommitLimits
from kvstored.tiers.changes.change_feed import ChangeFeed
from kvstored.tiers.chunks.accounts import device_shares, dram_shares
from kvstored.tiers.chunks.damage import DamageControl
from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.expirer import Expirer
from kvstored.tiers.chunks.inspection import Inspection
from kvstored.tiers.chunks.namespace_fill import namespace_statuses
from kvstored.tiers.chunks.nvme_room import NvmeRoom
from kvstored.tiers.chunks.promoter import Promoter
from kvstored.tiers.chunks.put_path import PutPath
from kvstored.tiers.chunks.read_path import ReadPath
from kvstored.tiers.chunks.requests import ChangesAnswer
from kvstored.tiers.chunks.stager import Stager
from kvstored.tiers.chunks.status import ScrubStatus
from kvstored.tiers.deletions import counted
from kvstored.tiers.hints.hints import Hints
from kvstored.tiers.hints.prefetcher import Prefetcher, watermarks
from kvstored.tiers.hints.waiting_queue import HintedTier, WaitingQueue
from kvstored.tiers.layouts import Layouts
from kvstored.tiers.recovered_store import RecoveredStore
from kvstored.tiers.scrub.scrub import Scrub
from kvstored.tiers.sequences.append_path import AppendPath
from kvstored.tiers.sequences.earlier_uses import EarlierUses
from kvstored.tiers.sequences.open_sequences import OpenSequences
from kvstored.tiers.sequences.sequence_recorder import SequenceRecorder
from kvstored.tiers.sequences.sequences import Sequences
from kvstored.tiers.sequences.tail_frames import TailFrames
from kvstored.tiers.tier_limits import TierLimits
from kvstored.tiers.upkeep.chunk_search import ChunkSearch
from kvstored.tiers.upkeep.hottest import Hottest
from kvstored.tiers.upkeep.tier_quotas import SharedTier, TierQuotas
from kvstored.tiers.upkeep.upkeep import Upkeep
from kvstored.tiers.upkeep.warmer import Warmer

__all__ = ["RecoveredStore", "TierLimits", "TieredStore", "make_room"]

DRAM_TIER = 0
"""The place of DRAM among the tiers that hints reach."""


def make_room(table: ChunkTable, limits: TierLimits, counters: Counters) -> NvmeRoom:
    """The room on the devices, for the chunks of a table."""
    return NvmeRoom(
        table=table,
        shares=device_shares(table, limits.device_retention, limits.namespaces),
        counters=counters,
        lifetimes=limits.lifetimes,
    )


def device_bytes(allocator: Allocator) -> int:
    """What the slabs of all devices hold."""
    return allocator.geometry.slab_count * allocator.geometry.slab_bytes


class TieredStore:
    """DRAM and NVMe as one store. Thread-safe.

    ``layouts``, ``put_path``, ``append_path``, ``read_path``, ``sequences``, ``open_sequences``,
    ``hints``, ``inspection`` and ``upkeep`` have the other verbs. What is here answers at once.
    """

    def __init__(self, recovered: RecoveredStore, *, engine: IoEngine, limits: TierLimits) -> None:
        counters = Counters()
        self._feed = ChangeFeed()
        self._room = room = make_room(recovered.table, limits, counters)
        self._store = store = self._make_chunk_store(recovered, limits.commit, engine, counters)
        self._dram = dram = self._make_dram(limits)
        self.layouts = Layouts(
            slab_bytes=min(each.class_bytes_max for each in (recovered.table.geometry, dram.space)),
            slice_bytes_max=limits.reader.plan.run_bytes_max,
            keep=store.remember_layout,
            kept=store.index.layout,
        )
        reader = self._make_reader(limits.reader, engine)
        self._promoter = Promoter(store=store, dram=dram, engine=engine, counters=counters)
        damage = DamageControl(store=store, engine=engine, counters=counters)
        scrub = limits.scrub and Scrub(
            store=store, room=room, engine=engine, counters=counters, limits=limits.scrub
        )
        stager = Stager(store=store, dram=dram, room=room, feed=self._feed)
        tails = TailFrames(store=store, dram=dram, engine=engine, stager=stager)
        self.put_path = PutPath(stager=stager, counters=counters)
        self.read_path = self._make_read_path(limits, counters, reader, damage)
        self.open_sequences = self._make_open_sequences()
        earlier_uses = EarlierUses(
            index=store.index, room=room, counters=counters, clock=recovered.table.clock
        )
        recorder = SequenceRecorder(self.open_sequences)
        self.append_path = AppendPath(
            sequences=self.open_sequences,
            recorder=recorder,
            tails=tails,
            dram=dram,
            stager=stager,
            counters=counters,
        )
        self.sequences = Sequences(opened=self.open_sequences, tails=tails)
        queue = WaitingQueue(self._hinted_tiers(recovered.allocator))
        prefetcher = self._make_prefetcher(queue, engine, counters)
        self.hints = Hints(
            queue=queue,
            opened=self.open_sequences,
            layout_of=self.layouts.find,
            counters=counters,
            on_change=prefetcher.wake,
        )
        self.upkeep = self._make_upkeep(recovered.allocator, limits, engine, stager, counters)
        self.inspection = Inspection(
            store=store,
            dram=dram,
            devices=recovered.devices,
            counters=counters,
            scrub_status=scrub.status if scrub else ScrubStatus,
            waiting_count=queue.__len__,
            namespaces=lambda: namespace_statuses(self.upkeep.quotas.now, limits.ttl_s, dram, room),
        )
        expirer = room.ages.is_on and Expirer(store=store, dram=dram, room=room, counters=counters)
        self._ends: list[Callable[[], None]] = [
            *((scrub.close,) if scrub else ()),
            *((expirer.close,) if expirer else ()),
            earlier_uses.close,
            prefetcher.close,
            self._promoter.close,
            damage.close,
            engine.close,
            self._wait_for_commits,
            recorder.close,
            store.close,
            reader.close,
        ]
        """What ends the parts, in this order: none still works for one that has ended."""

    @property
    def has_failed(self) -> bool:
        """Whether nobody knows what the last commit did: the index is not to be trusted."""
        return self._store.committer.has_failed

    @property
    def next_stamp(self) -> int:
        """Above every stamp in the index."""
        return self._store.writes.next_stamp

    def match(self, namespace_id: bytes, keys: Sequence[bytes]) -> int:
        """Length of the longest prefix of ``keys`` that could be read now."""
        return self.read_path.match([ChunkId(namespace_id, key) for key in keys])

    def pin(self, namespace_id: bytes, keys: Sequence[bytes]) -> tuple[ChunkId, ...]:
        """Pins those of the chunks that could be read now, from any tier, and returns them.

        Until they are unpinned these stay: on their device, and in DRAM where only that has
        them. What nobody can keep is a staged chunk whose device fails before it is written.
        """
        chunks = [ChunkId(namespace_id, key) for key in keys]
        # Before the pins: what somebody has pinned does not expire.
        expired = self.read_path.expired(chunks)
        # Before the look: what it finds is not evicted any more.
        self._store.pins.pin(chunks)
        try:
            are_readable = [
                is_found and chunk not in expired
                for chunk, is_found in zip(chunks, self.read_path.are_readable(chunks), strict=True)
            ]
        except BaseException:
            self._store.pins.unpin(chunks)
            raise
        absent = [
            chunk for chunk, is_found in zip(chunks, are_readable, strict=True) if not is_found
        ]
        self._store.pins.unpin(absent)
        # Of a key that is named more than once, each is pinned or is not.
        return tuple(
            [chunk for chunk, is_found in zip(chunks, are_readable, strict=True) if is_found]
        )

    def unpin(self, chunks: Iterable[ChunkId]) -> None:
        """Takes back one pin of each chunk."""
        self._store.pins.unpin(chunks)

    def delete(self, namespace_id: bytes, keys: Sequence[bytes]) -> Future[int]:
        """Deletes chunks; they are unreadable at once.

        The future tells, when that is durable, how many there were. Where some could not be
        deleted it ends with DeletionError.
        """
        pending = []
        for key in keys:
            chunk = ChunkId(namespace_id, key)
            # In this order: a promotion that begins in between finds nothing to load.
            pending.append(self._store.delete(chunk))
            self._dram.drop(chunk)
        return counted(pending)

    def changes(
        self, namespace_id: bytes, keys: Sequence[bytes], *, epoch: int, after_sequence: int
    ) -> ChangesAnswer:
        """What came and went in a namespace after a place, and which of ``keys`` are stored.

        The place is one of ``epoch``; of another one than this it says nothing.
        """
        is_ours = epoch == self._store.device_set.epoch
        span = self._feed.after(namespace_id, after_sequence if is_ours else None)
        # After the changes: the next ones tell what goes from here on.
        chunks = [ChunkId(namespace_id, key) for key in keys]
        expired = self.read_path.expired(chunks)
        are_readable = self.read_path.are_readable(chunks)
        return ChangesAnswer(
            epoch=self._store.device_set.epoch,
            span=span,
            are_stored=tuple(
                [
                    is_found and chunk not in expired
                    for chunk, is_found in zip(chunks, are_readable, strict=True)
                ]
            ),
        )

    def close(self) -> None:
        """Finishes every write and commit, then ends all threads; again has no effect.

        The index and the devices stay open; the caller closes them.
        """
        while self._ends:
            self._ends.pop(0)()

    def _used_together(self, namespace_id: bytes, keys: Sequence[bytes]) -> None:
        if keys:
            chunks = [ChunkId(namespace_id, key) for key in keys]
            self._dram.hints.used_together(chunks)
            self._room.used_together(chunks)

    def _wait_for_commits(self) -> None:
        """What became durable is then known to who records it; every write must be over."""
        are_settled = threading.Event()
        self._store.committer.submit(Commit(change=IndexChange(), done=lambda _: are_settled.set()))
        are_settled.wait()

    def _make_chunk_store(
        self,
        recovered: RecoveredStore,
        limits: CommitLimits,
        engine: IoEngine,
        counters: Counters,
    ) -> ChunkStore:
        return ChunkStore(
            ChunkStoreParts(
                device_set=recovered.device_set,
                index=recovered.index,
                allocator=recovered.allocator,
                engine=engine,
                commit_limits=limits,
                next_stamp=recovered.next_stamp,
                counters=counters,
            ),
            on_stored=self._room.stored,
            on_removed=self._left_devices,
            on_device_lost=self._feed.lose,
        )

    def _make_reader(self, limits: ReaderLimits, engine: IoEngine) -> Reader:
        return Reader(
            engine=engine,
            device_count=len(self._store.device_set.devices),
            limits=limits,
            on_device_error=self._store.failures.report,
        )

    def _make_upkeep(
        self,
        allocator: Allocator,
        limits: TierLimits,
        engine: IoEngine,
        stager: Stager,
        counters: Counters,
    ) -> Upkeep:
        store, dram = self._store, self._dram
        return Upkeep(
            search=ChunkSearch(store.index),
            warmer=Warmer(store=store, dram=dram, engine=engine, counters=counters),
            quotas=TierQuotas(
                limits.namespaces,
                limits.ttl_s,
                dram=SharedTier(dram.shares.use, dram.space.capacity_bytes),
                devices=SharedTier(self._room.shares.use, device_bytes(allocator)),
            ),
            staged_count=lambda: stager.staged_count,
            hottest=Hottest(store.index, dram, self._promoter).find,
        )

    def _make_read_path(
        self,
        limits: TierLimits,
        counters: Counters,
        reader: Reader,
        damage: DamageControl,
    ) -> ReadPath:
        return ReadPath(
            store=self._store,
            dram=self._dram,
            room=self._room,
            reader=reader,
            bounce_bytes=limits.reader.plan.run_bytes_max,
            counters=counters,
            on_read=self._promoter.was_read,
            on_damage=damage.suspect,
        )

    def _make_open_sequences(self) -> OpenSequences:
        return OpenSequences(
            table=SequenceTable(index=self._store.index, committer=self._store.committer),
            dram=self._dram,
            layout_of=self.layouts.find,
            on_grown=self._used_together,
        )

    def _make_prefetcher(
        self, queue: WaitingQueue, engine: IoEngine, counters: Counters
    ) -> Prefetcher:
        return Prefetcher(
            waiting=lambda: [one.waiting for one in queue.head(DRAM_TIER)],
            store=self._store,
            dram=self._dram,
            engine=engine,
            counters=counters,
        )

    def _hinted_tiers(self, allocator: Allocator) -> tuple[HintedTier, ...]:
        """DRAM, and the devices: tiers are inclusive, so each protects what fits it alone.

        Of that hints of a namespace protect its quota at most.
        """
        capacity_bytes = self._dram.space.capacity_bytes
        dram_bytes = capacity_bytes - watermarks(capacity_bytes).high_bytes
        of_devices = device_bytes(allocator)
        return (
            HintedTier(
                lambda namespace_id: self._dram.shares.use.quotas.protected_bytes(
                    namespace_id, dram_bytes
                ),
                self._dram.hints.hint,
            ),
            HintedTier(
                lambda namespace_id: self._room.shares.use.quotas.protected_bytes(
                    namespace_id, of_devices
                ),
                self._room.hint,
            ),
        )

    def _make_dram(self, limits: TierLimits) -> DramTier:
        return DramTier(
            capacity_bytes=limits.dram_bytes,
            slab_bytes=limits.dram_slab_bytes,
            shares=dram_shares(limits.dram_retention, limits.namespaces),
            lifetimes=limits.lifetimes,
            is_kept=self._is_kept_in_dram,
            on_left=self._left_dram,
        )

    def _is_kept_in_dram(self, chunk: ChunkId) -> bool:
        """Whether only DRAM has a chunk that somebody has pinned: then it must stay there."""
        return self._store.pins.is_pinned(chunk) and not self.read_path.are_visible([chunk])[0]

    def _left_devices(self, chunk: ChunkId) -> None:
        self._room.removed(chunk)
        self._feed.left(chunk, self._dram.contains)

    def _left_dram(self, chunk: ChunkId) -> None:
        self._feed.left(chunk, lambda gone: self.read_path.are_visible([gone])[0])
