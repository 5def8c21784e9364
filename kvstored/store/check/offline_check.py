"""The offline check: everything that is on media against everything that vouches for it."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.errors import FormatError
from kvstored.format.geometry import Extent
from kvstored.format.identity import ChunkId
from kvstored.format.superblock import SUPERBLOCK_BYTES, Superblock
from kvstored.io.device import DeviceError
from kvstored.io.memory import AlignedMemory, ScratchPool
from kvstored.store.check.check_report import CheckReport, Problem, ProblemKind, ProblemList
from kvstored.store.check.chunk_check import READ_BYTES, ChunkCheck, check_chunk
from kvstored.store.index.failure import IndexDamagedError
from kvstored.store.index.index import Index, IndexFailure
from kvstored.store.space.bounded_map import bounded_map
from kvstored.store.space.device_set import DeviceSet
from kvstored.store.space.slab_scan import read_slab_header, slab_places
from kvstored.store.start.recover import (
    RecoverError,
    allocator_of,
    check_age,
    check_membership,
    occupy,
)

CHECK_THREADS = 8


def check_store(
    index: Index, device_set: DeviceSet, progress: Callable[[int, int], None]
) -> CheckReport:
    """Verifies superblocks, index, slab headers, extents and the bytes of every chunk.

    Only reads; nobody may serve from the store meanwhile. ``progress`` gets the
    chunks verified and those in the index. Damage is in the report and not raised;
    but an index so damaged that reading it ends the process is found by ``index_probe``.
    """
    problems = ProblemList()
    chunk_count, verified_bytes, total = 0, 0, 0
    _check_superblocks(device_set, problems)
    try:
        _check_index(index, device_set, problems)
        total = index.usage.chunk_count
        extents = _Extents(device_set, problems)
        for chunk, record in index.walks.quarantined():
            extents.take(record.extent, f"quarantined chunk {chunk.key.hex()}")
        for result in _check_chunks(index, device_set, extents):
            chunk_count += 1
            verified_bytes += result.verified_bytes
            for problem in result.problems:
                problems.add(problem)
            progress(chunk_count, total)
        _check_slab_headers(device_set, extents.slab_classes, problems)
    except IndexFailure as error:
        problems.add(Problem(kind=ProblemKind.INDEX_TREE, where=str(index.path), what=str(error)))
    progress(total, total)
    return CheckReport(
        chunk_count=chunk_count,
        verified_bytes=verified_bytes,
        problem_count=problems.count,
        problems=tuple(problems.problems),
    )


class _Extents:
    """Which extents the index says are used, as an allocator would have it.

    ``slab_classes`` has the size class of each used slab by (device index, slab index).
    """

    def __init__(self, device_set: DeviceSet, problems: ProblemList) -> None:
        self._allocator = allocator_of(device_set)
        self._problems = problems
        self.slab_classes: dict[tuple[int, int], int] = {}

    def take(self, extent: Extent, where: str) -> bool:
        """Whether the extent fits and is used once; else it is reported."""
        cause = occupy(self._allocator, extent)
        if cause is not None:
            self._problems.add(Problem(kind=ProblemKind.EXTENT, where=where, what=cause))
            return False
        slab = extent.device_index, self._allocator.geometry.slab_index(extent)
        self.slab_classes[slab] = extent.byte_count
        return True


def _check_superblocks(device_set: DeviceSet, problems: ProblemList) -> None:
    with closing(AlignedMemory(SUPERBLOCK_BYTES)) as page:
        for device, superblock in zip(device_set.devices, device_set.superblocks, strict=True):
            for offset in superblock.copy_offsets:
                where = f"byte {offset} of {device.facts.name}"
                try:
                    device.readv([page.view], offset)
                    cause = _superblock_problem(bytes(page.view), superblock)
                except DeviceError as error:
                    problems.add(Problem(kind=ProblemKind.DEVICE, where=where, what=str(error)))
                    continue
                if cause is not None:
                    problems.add(Problem(kind=ProblemKind.SUPERBLOCK, where=where, what=cause))


def _superblock_problem(page: bytes, expected: Superblock) -> str | None:
    """What is wrong with a copy of a superblock, of which ``expected`` is the newest.

    A copy of an earlier epoch is what a start leaves that was cut short between both.
    """
    try:
        found = Superblock.decode(page)
    except FormatError as error:
        return str(error)
    is_older = found.epoch < expected.epoch
    is_same = found == (replace(expected, epoch=found.epoch) if is_older else expected)
    return None if is_same else "differs from the other copy"


def _check_index(index: Index, device_set: DeviceSet, problems: ProblemList) -> None:
    try:
        check_membership(index, device_set)
        check_age(index, device_set)
    except (RecoverError, IndexDamagedError) as error:
        problems.add(Problem(kind=ProblemKind.INDEX_META, where=str(index.path), what=str(error)))
    for table, key, cause in index.walks.damaged_entries():
        problems.add(
            Problem(
                kind=ProblemKind.INDEX_ENTRY, where=f"{table.name} entry {key.hex()}", what=cause
            )
        )


def _check_chunks(index: Index, device_set: DeviceSet, extents: _Extents) -> Iterator[ChunkCheck]:
    """Verifies every chunk whose extent is possible, several at a time."""

    def run(entry: tuple[ChunkId, ChunkRecord]) -> ChunkCheck:
        chunk, record = entry
        device_index = record.extent.device_index
        scratch = pool.acquire()
        try:
            return check_chunk(
                chunk,
                record,
                lambda: index.lengths([entry])[0],
                device_set.devices[device_index],
                device_set.device_ids[device_index],
                scratch,
            )
        finally:
            pool.release(scratch)

    placed = (
        (chunk, record)
        for chunk, record in index.walks.records()
        if extents.take(record.extent, f"chunk {chunk.key.hex()}")
    )
    with (
        closing(ScratchPool(READ_BYTES, CHECK_THREADS)) as pool,
        ThreadPoolExecutor(CHECK_THREADS, thread_name_prefix="kvstored-check") as executor,
    ):
        yield from bounded_map(executor, run, placed, depth=2 * CHECK_THREADS)


def _check_slab_headers(
    device_set: DeviceSet, slab_classes: dict[tuple[int, int], int], problems: ProblemList
) -> None:
    """Without its slab's header a rebuild would not find the chunks of a slab."""
    with closing(AlignedMemory(SUPERBLOCK_BYTES)) as page:
        for place in slab_places(device_set):
            wanted = slab_classes.get((place.device_index, place.slab_index))
            if wanted is None:
                continue
            where = f"slab {place.slab_index} of {place.device.facts.name}"
            try:
                header = read_slab_header(place, page.view)
            except DeviceError as error:
                problems.add(Problem(kind=ProblemKind.DEVICE, where=where, what=str(error)))
                continue
            if header is None or header.class_bytes != wanted:
                found = "no sound header" if header is None else f"size class {header.class_bytes}"
                problems.add(
                    Problem(
                        kind=ProblemKind.SLAB_HEADER,
                        where=where,
                        what=f"{found} where the index has extents of {wanted} bytes",
                    )
                )
