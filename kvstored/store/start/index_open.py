"""From the index on media to a store's start, whatever way the last stop went."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kvstored.format.errors import FormatError
from kvstored.store.index.aside import clear_away, end_build
from kvstored.store.index.index import Index, IndexChange, IndexDamagedError
from kvstored.store.index.index_lock import IndexLock
from kvstored.store.index.meta import IndexMeta
from kvstored.store.index.scan import Scanned
from kvstored.store.index.service import OpenedIndex, Snapshot, open_for_service
from kvstored.store.space.device_set import DeviceSet
from kvstored.store.start.rebuild import rebuild_index
from kvstored.store.start.recover import Recovered, Recovery, check_age, recover

LOGGER = logging.getLogger(__name__)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """An index in service, what the store starts from, and the epoch that began."""

    index: Index
    recovered: Recovered
    epoch: int


def start(
    path: Path, map_bytes: int, device_set: DeviceSet, progress: Callable[[int, int], None]
) -> Started:
    """Locks and opens the index, recovers from it and begins the next epoch.

    After a clean stop from its snapshot, after any other from the one walk of the child
    process that looks through it. An index that is new, was cut short, is unsound or older
    than the devices allow is rebuilt from the devices, also if only the first write to it
    meets the damage; ``progress`` gets the slabs that were read for that and those there
    are. Raises IndexFailure, RecoverError and DeviceError.
    """

    def attempt() -> tuple[Index, tuple[Recovered, int]]:
        index, recovered = _open(path, map_bytes, device_set, progress)
        try:
            epoch = begin_epoch(index, device_set)
        except BaseException:
            index.close()
            raise
        return index, (recovered, epoch)

    index, (recovered, epoch) = _twice(path, attempt)
    return Started(index=index, recovered=recovered, epoch=epoch)


def open_recovered(
    path: Path, map_bytes: int, device_set: DeviceSet, progress: Callable[[int, int], None]
) -> tuple[Index, Recovered]:
    """As ``start``, without beginning an epoch."""
    return _twice(path, lambda: _open(path, map_bytes, device_set, progress))


def _twice(path: Path, attempt: Callable[[], tuple[Index, Result]]) -> tuple[Index, Result]:
    """Attempts it with the index locked, and again without the index if that is damaged.

    The lock goes to the index that was opened.
    """
    lock = IndexLock(path)
    try:
        try:
            index, result = attempt()
        except IndexDamagedError as error:
            clear_away(path, error)
            lock.renew()
            index, result = attempt()
    except BaseException:
        lock.release()
        raise
    index.lock = lock
    return index, result


def _open(
    path: Path, map_bytes: int, device_set: DeviceSet, progress: Callable[[int, int], None]
) -> tuple[Index, Recovered]:
    recovery = Recovery(device_set)
    opened = open_for_service(
        path, map_bytes, recovery.add, verify=lambda index: check_age(index, device_set)
    )
    try:
        recovered = _recovered(opened, recovery, device_set, progress)
        end_build(path)
    except BaseException:
        opened.index.close()
        raise
    return opened.index, recovered


def _recovered(
    opened: OpenedIndex,
    recovery: Recovery,
    device_set: DeviceSet,
    progress: Callable[[int, int], None],
) -> Recovered:
    index = opened.index
    if not opened.was_clean:
        LOGGER.info("the last stop was not clean; the index was looked through and is sound")
    if index.meta() is None:
        _rebuild(index, device_set, progress)
        return recover(index, device_set)
    if not opened.was_clean:
        return recovery.finish(index)
    return _from_snapshot(opened, device_set) or recover(index, device_set)


def begin_epoch(index: Index, device_set: DeviceSet) -> int:
    """Makes the next epoch durable and returns it; raises IndexFailure and DeviceError.

    The index has it before any device: ``IndexMeta.is_outdated`` relies on that.
    """
    meta = IndexMeta(set_id=device_set.set_id, epoch=device_set.epoch + 1, clean=False)
    index.apply(IndexChange(meta=meta))
    return device_set.advance_epoch()


def _rebuild(index: Index, device_set: DeviceSet, progress: Callable[[int, int], None]) -> None:
    rebuilt = rebuild_index(device_set, index, progress)
    LOGGER.info("built the index: %d chunks", rebuilt.chunk_count)
    if rebuilt.left_out_count:
        LOGGER.warning(
            "the index has no room for %d chunks that were found; to have them back, stop now, "
            "raise store.index_map_bytes, remove the index and start again",
            rebuilt.left_out_count,
        )
    for name, unread in rebuilt.unread.items():
        LOGGER.warning(
            "%s: %d slabs and %d extent headers could not be read; what lies there is lost to the "
            "index; look at the drive",
            name,
            unread.slab_count,
            unread.header_count,
        )


def _from_snapshot(opened: OpenedIndex, device_set: DeviceSet) -> Recovered | None:
    """What the snapshot says, if there is one and all of it is sound and fits."""
    if opened.snapshot is None:
        return None
    try:
        recovered = _taken(opened.snapshot, device_set).finish_agreed(opened.index)
    except (FormatError, OSError) as error:
        LOGGER.warning("the snapshot of the index cannot be used: %s", error)
        return None
    if recovered is None:
        LOGGER.warning("the snapshot of the index contradicts itself; it is not used")
    return recovered


def _taken(snapshot: Snapshot, device_set: DeviceSet) -> Recovery:
    recovery = Recovery(device_set)
    recovery.reserve_stamps(snapshot.next_stamp - 1)
    for claims in snapshot.claims:
        recovery.add(Scanned(claims=claims, damaged_keys=[]))
    return recovery
