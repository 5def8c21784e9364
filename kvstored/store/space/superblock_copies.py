"""Reading and writing the two copies of a device's superblock."""

import logging
from contextlib import closing

from kvstored.format.errors import FormatError
from kvstored.format.superblock import SUPERBLOCK_BYTES, Superblock
from kvstored.io.device import Device, DeviceError
from kvstored.io.memory import AlignedMemory

LOGGER = logging.getLogger(__name__)


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

    Where none is left raises DeviceError if one could not be read, else FormatError.
    """
    unread: dict[int, DeviceError] = {}
    unsound: list[FormatError] = []
    copies: list[Superblock] = []
    for offset in _end_offsets(device):
        try:
            copies.append(Superblock.decode(_read_page(device, offset)))
        except DeviceError as error:
            unread[offset] = error.without_frames()
        except FormatError as error:
            unsound.append(error)
    if not copies:
        raise next(iter([*unread.values(), *unsound]), FormatError("no superblock"))
    for offset, cause in unread.items():
        LOGGER.warning(
            "%s; the other copy stands in for the superblock copy at byte %d, which a start of the "
            "daemon rewrites; replace the device if it cannot be read after that",
            cause,
            offset,
        )
    return max(copies, key=lambda copy: copy.epoch)


def read_end_pages(device: Device) -> list[bytes]:
    """The first and the last whole page of a device, fewer where it is that small.

    Raises DeviceError.
    """
    return [_read_page(device, offset) for offset in _end_offsets(device)]


def _end_offsets(device: Device) -> list[int]:
    last_offset = (device.facts.capacity_bytes // SUPERBLOCK_BYTES - 1) * SUPERBLOCK_BYTES
    return sorted({0, last_offset}) if last_offset >= 0 else []


def _read_page(device: Device, offset: int) -> bytes:
    with closing(AlignedMemory(SUPERBLOCK_BYTES)) as memory:
        device.readv([memory.view], offset)
        return bytes(memory.view)
