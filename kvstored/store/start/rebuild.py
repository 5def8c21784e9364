"""Rebuilding the index from the headers on the devices.

What a rebuild cannot know: sequences and layouts survive only where the old index is
still readable; chunks that were deleted or quarantined are found again as long as
their extent was not reused (their bytes are verified when they are read). These can be more
than the index has room for.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate

from kvstored.format.identity import ChunkId
from kvstored.io.device import DeviceError
from kvstored.io.memory import ScratchPool
from kvstored.store.index.failure import IndexFullError
from kvstored.store.index.index import Index, IndexChange, IndexMeta
from kvstored.store.index.room import chunk_entries
from kvstored.store.space.bounded_map import bounded_map
from kvstored.store.space.device_set import DeviceSet
from kvstored.store.space.scanned_slab import ScannedSlab
from kvstored.store.space.second_looks import SecondLooks
from kvstored.store.space.slab_scan import SCAN_BYTES, SlabPlace, scan_slab, slab_places
from kvstored.store.start.rebuild_batch import RebuildBatch, is_newer, written_at

SCAN_THREADS = 16
RECORD_BATCH = 100_000
"""Entries that one index transaction stores, in the order of their keys.

Many, because each transaction writes almost every page of a large index that it meets.
"""
RECORDS_UNDIVIDED_MAX = 1024
"""Records that are not divided further where they do not fit.

Single ones would take the last free pages, which the meta data after them needs.
"""


@dataclass(slots=True, kw_only=True)
class Unread:
    """What one device could not read: headers of slabs, which lose the whole slab, and of extents.

    Extents that hold no chunk are among them: that is what nobody can tell any more.
    """

    slab_count: int = 0
    header_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What a rebuild found. What is ``unread``, by the device's name, is lost to the index.

    So are the chunks that were left out, because its map has no room for them.
    """

    chunk_count: int
    slab_count: int
    left_out_count: int
    unread: dict[str, Unread]


def rebuild_index(
    device_set: DeviceSet, index: Index, progress: Callable[[int, int], None]
) -> Rebuilt:
    """Replaces the chunks of the index by those that the devices hold.

    ``progress`` gets the slabs scanned and those there are. A rebuild that is
    interrupted leaves an index without meta data, which must be rebuilt again.
    Raises IndexFailure.
    """
    places = slab_places(device_set)
    looks = [SecondLooks() for _ in device_set.devices]
    index.clear_chunks()
    batch = RebuildBatch()
    unread: dict[str, Unread] = {}
    left_out_count = 0

    def scan(place: SlabPlace) -> tuple[SlabPlace, ScannedSlab | None]:
        scratch = pool.acquire()
        try:
            return place, scan_slab(place, scratch, looks[place.device_index])
        except DeviceError:
            return place, None
        finally:
            pool.release(scratch)

    with (
        closing(ScratchPool(SCAN_BYTES, SCAN_THREADS)) as pool,
        ThreadPoolExecutor(SCAN_THREADS, thread_name_prefix="kvstored-rebuild") as executor,
    ):
        results = bounded_map(executor, scan, places, depth=2 * SCAN_THREADS)
        for done, (place, found) in enumerate(results, start=1):
            if found is None:
                unread.setdefault(place.device.facts.name, Unread()).slab_count += 1
            elif found.unread_count:
                unread.setdefault(
                    place.device.facts.name, Unread()
                ).header_count += found.unread_count
            if found is not None:
                batch.add(found)
            if batch.entry_count >= RECORD_BATCH:
                left_out_count += _store(index, batch)
            progress(done, len(places))
    left_out_count += _store(index, batch)
    index.apply(
        IndexChange(meta=IndexMeta(set_id=device_set.set_id, epoch=device_set.epoch, clean=False))
    )
    return Rebuilt(
        chunk_count=index.usage.chunk_count,
        slab_count=len(places),
        left_out_count=left_out_count,
        unread=unread,
    )


def _store(index: Index, batch: RebuildBatch) -> int:
    """Stores and empties a batch; a newer record that an earlier batch stored stays.

    Returns how many chunks were left out, the oldest of the batch, because chunks that
    were evicted are found again: there may be more than the index has room for.
    """
    records = batch.records
    chunks = sorted(records, key=ChunkId.encode)
    olds = list(zip(chunks, index.get_many(chunks), strict=True))
    newest_first = sorted(
        (chunk for chunk, old in olds if old is None),
        key=lambda chunk: written_at(records[chunk]),
        reverse=True,
    )
    taken = accumulate(chunk_entries(batch.parts_count(chunk)) for chunk in newest_first)
    left_chunks = index.usage.left_chunks
    left_out = set(newest_first[sum(entries <= left_chunks for entries in taken) :])
    puts = [
        chunk
        for chunk, old in olds
        if chunk not in left_out and (old is None or is_newer(records[chunk], old))
    ]
    left_out_count = len(left_out) + _put(index, batch, puts)
    batch.clear()
    return left_out_count


def _put(index: Index, batch: RebuildBatch, chunks: list[ChunkId]) -> int:
    """Stores what the map has room for, in parts if need be; returns how many were left out."""
    try:
        index.apply(batch.change(chunks))
    except IndexFullError:
        if len(chunks) <= RECORDS_UNDIVIDED_MAX:
            return len(chunks)
        middle = len(chunks) // 2
        return _put(index, batch, chunks[:middle]) + _put(index, batch, chunks[middle:])
    return 0
