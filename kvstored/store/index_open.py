"""From the index on media to a store's start, whatever way the last stop went."""

import logging
from collections.abc import Callable
from pathlib import Path

from kvstored.format.errors import FormatError
from kvstored.store.device_set import DeviceSet
from kvstored.store.index import Index, IndexDamagedError
from kvstored.store.index_scan import Scanned
from kvstored.store.index_service import OpenedIndex, Snapshot, open_for_service, set_aside
from kvstored.store.rebuild import rebuild_index
from kvstored.store.recover import Recovered, Recovery, recover

LOGGER = logging.getLogger(__name__)


def open_recovered(
    path: Path, map_bytes: int, device_set: DeviceSet, progress: Callable[[int, int], None]
) -> tuple[Index, Recovered]:
    """Opens the index and recovers from it.

    After a clean stop from its snapshot, after any other from the one walk of the child
    process that looks through it. An index that is new, was cut short or is unsound is
    rebuilt from the devices; ``progress`` is told the slabs that were read for that and
    those there are. Raises IndexFailure and RecoverError.
    """
    recovery = Recovery(device_set)
    try:
        opened = open_for_service(path, map_bytes, recovery.add)
    except IndexDamagedError as error:
        aside = set_aside(path)
        LOGGER.warning("%s; it is kept as %s", error, aside)
        recovery = Recovery(device_set)
        opened = open_for_service(path, map_bytes, recovery.add)
    index = opened.index
    if not opened.was_clean:
        LOGGER.info("the last stop was not clean; the index was looked through and is sound")
    if index.meta() is None:
        _rebuild(index, device_set, progress)
        return index, recover(index, device_set)
    if not opened.was_clean:
        return index, recovery.finish(index)
    return index, _from_snapshot(opened, device_set) or recover(index, device_set)


def _rebuild(index: Index, device_set: DeviceSet, progress: Callable[[int, int], None]) -> None:
    rebuilt = rebuild_index(device_set, index, progress)
    LOGGER.info("built the index: %d chunks", rebuilt.chunk_count)
    if rebuilt.unreadable_slab_count:
        LOGGER.warning("%d slabs could not be read", rebuilt.unreadable_slab_count)


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
