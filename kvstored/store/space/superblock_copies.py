"""Reading and writing the two copies of a device's superblock.

The second copy lies where the device ended when it was formatted. On a larger one that it was
copied to since, only the first copy tells where that is. Where the first page is lost as well the
second copy is looked for.
"""

import logging
from contextlib import closing
from dataclasses import replace

from kvstored.format import extent_header, slab_header
from kvstored.format.errors import FormatError
from kvstored.format.superblock import DATA_OFFSET, MAGIC, SUPERBLOCK_BYTES, Superblock
from kvstored.io.device import READS_MAX, Device, DeviceError
from kvstored.io.memory import AlignedMemory

LOGGER = logging.getLogger(__name__)

SEARCH_BYTES_MAX = 1024**4
"""So far from the end of a device its second copy is looked for: minutes on a fast drive."""
SEARCH_STEP_BYTES = 1024 * 1024
SEARCH_ERRORS_MAX = 8
"""Steps in a row that cannot be read before a search is given up: each may take a drive long."""
_FIRST_PAGES = 2
"""Pages of the first slab that tell whether it was ever used: its header and that of an extent."""


def write_superblock(device: Device, superblock: Superblock) -> None:
    """Makes both copies durable, one after the other; raises DeviceError.

    One copy is whole at every moment: the second is not touched before the first is
    on media.
    """
    memory = AlignedMemory(SUPERBLOCK_BYTES)
    try:
        memory.view[:] = superblock.encode()
        for offset in superblock.copy_offsets:
            device.writev([memory.view], offset)
            device.flush()
    finally:
        memory.close()


def read_superblock(device: Device) -> Superblock:
    """The newer of the valid copies; one that cannot be read is as good as damaged.

    The first one tells where the second lies. On a drive that was used before, the superblock of
    another set may lie at the end, however large its epoch: it counts only in its own place, and
    beside a first copy only if both are of the same device. Where none is left raises DeviceError
    if one could not be read, else FormatError.
    """
    problems: dict[int, DeviceError | FormatError] = {}
    # Again where it is not found: what stands in for it may be of another set.
    firsts = (_copy_at(device, 0, problems) for _ in range(READS_MAX))
    first = next((copy for copy in firsts if copy is not None), None)
    second_offset = _second_offset(device, first)
    second = None if second_offset is None else _copy_at(device, second_offset, problems)
    found = _newer(device, first, second)
    if found is None:
        errors = list(problems.values())
        raise next((error for error in errors if isinstance(error, DeviceError)), errors[0])
    for offset, cause in problems.items():
        if isinstance(cause, DeviceError):
            LOGGER.warning(
                "%s; the other copy stands in for the superblock copy at byte %d, which a start of "
                "the daemon rewrites; replace the device if it cannot be read after that",
                cause,
                offset,
            )
    return found


def _copy_at(
    device: Device, offset: int, problems: dict[int, DeviceError | FormatError]
) -> Superblock | None:
    """The superblock in a page if that is one of its places; else why not is in ``problems``."""
    problems.pop(offset, None)
    if offset + SUPERBLOCK_BYTES > _whole_bytes(device):
        problems[offset] = FormatError("no superblock")
        return None
    try:
        copy = Superblock.decode(_read(device, offset, SUPERBLOCK_BYTES))
    except DeviceError as error:
        problems[offset] = error.without_frames()
        return None
    except FormatError as error:
        problems[offset] = error
        return None
    if offset in copy.copy_offsets:
        return copy
    problems[offset] = FormatError("superblock of a device of another size")
    return None


def _second_offset(device: Device, first: Superblock | None) -> int | None:
    """Where the second copy lies: as the first one says, else at the end of the device."""
    last_offset = _whole_bytes(device) - SUPERBLOCK_BYTES
    offset = last_offset if first is None else first.copy_offsets[1]
    is_possible = 0 < offset <= last_offset and offset % SUPERBLOCK_BYTES == 0
    return offset if is_possible else None


def _newer(
    device: Device, first: Superblock | None, second: Superblock | None
) -> Superblock | None:
    if first is None or second is None:
        return first or second
    if replace(second, epoch=first.epoch) == first:
        return max(first, second, key=lambda copy: copy.epoch)
    LOGGER.warning(
        "%s: the superblock copy at byte %d is that of another device; the first copy counts, and "
        "a start of the daemon rewrites the other",
        device.facts.name,
        first.copy_offsets[1],
    )
    return first


def find_superblock(device: Device) -> Superblock:
    """As ``read_superblock``; where that finds none, the second copy of a smaller device.

    For a set that is opened: of a device that was never formatted nothing is searched.
    """
    try:
        return read_superblock(device)
    except (DeviceError, FormatError) as error:
        if not _may_have_grown(device, error):
            raise
        LOGGER.warning(
            "%s has no superblock at its ends (%s); the copy of a smaller device is looked for, "
            "which can take minutes",
            device.facts.name,
            error,
        )
        found = _searched(device)
        if found is None:
            raise
    LOGGER.warning(
        "%s: the superblock copy at byte %d stands in for the first one, which a start of the "
        "daemon rewrites",
        device.facts.name,
        found.copy_offsets[1],
    )
    return found


def has_blank_ends(device: Device) -> bool:
    """Whether there are zeros only before the first slab, and in as much at the end.

    There lies what tells of a device of a set, of a file system, or of a part of md or LVM.
    Raises DeviceError.
    """
    end = _whole_bytes(device)
    byte_count = min(end, DATA_OFFSET)
    starts = sorted({0, end - byte_count}) if byte_count else []
    return all(_read(device, start, byte_count) == bytes(byte_count) for start in starts)


def _may_have_grown(device: Device, error: DeviceError | FormatError) -> bool:
    """Whether a superblock may lie elsewhere than at the ends.

    That is so where an end cannot be read, or the first slab was used. It is not where the last
    page is a copy, even if that is damaged or of another version, unless it is that of a device of
    another size.
    """
    end = _whole_bytes(device)
    if end < DATA_OFFSET + _FIRST_PAGES * SUPERBLOCK_BYTES:
        return False
    if isinstance(error, DeviceError):
        return True
    try:
        last = _read(device, end - SUPERBLOCK_BYTES, SUPERBLOCK_BYTES)
        if last.startswith(MAGIC) and _decoded(last) is None:
            return False
        first = _read(device, DATA_OFFSET, _FIRST_PAGES * SUPERBLOCK_BYTES)
    except DeviceError:
        return True
    headers = slab_header.MAGIC, extent_header.MAGIC
    return any(first.startswith(headers, page * SUPERBLOCK_BYTES) for page in range(_FIRST_PAGES))


def _searched(device: Device) -> Superblock | None:
    """The last second copy that lies where it says; what cannot be read is passed over."""
    end = _whole_bytes(device)
    least = max(DATA_OFFSET, end - SEARCH_BYTES_MAX)
    errors_in_a_row = 0
    with closing(AlignedMemory(SEARCH_STEP_BYTES)) as memory:
        while end > least and errors_in_a_row < SEARCH_ERRORS_MAX:
            start = max(end - SEARCH_STEP_BYTES, least)
            try:
                device.readv([memory.view[: end - start]], start)
            except DeviceError:
                errors_in_a_row += 1
            else:
                errors_in_a_row = 0
                found = _second_copy(bytes(memory.view[: end - start]), start)
                if found is not None:
                    return found
            end = start
    return None


def _second_copy(stretch: bytes, start: int) -> Superblock | None:
    """The last page of a stretch, which begins at ``start``, that is a copy in its own place."""
    place = stretch.rfind(MAGIC)
    while place >= 0:
        if place % SUPERBLOCK_BYTES == 0:
            copy = _decoded(stretch[place : place + SUPERBLOCK_BYTES])
            if copy is not None and copy.copy_offsets[1] == start + place:
                return copy
        place = stretch.rfind(MAGIC, 0, place)
    return None


def _decoded(page: bytes) -> Superblock | None:
    try:
        return Superblock.decode(page)
    except FormatError:
        return None


def _whole_bytes(device: Device) -> int:
    """What the device has of whole pages."""
    return device.facts.capacity_bytes // SUPERBLOCK_BYTES * SUPERBLOCK_BYTES


def _read(device: Device, offset: int, byte_count: int) -> bytes:
    with closing(AlignedMemory(byte_count)) as memory:
        device.readv([memory.view], offset)
        return bytes(memory.view)
