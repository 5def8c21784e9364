"""Reading and writing the two copies of a device's superblock."""

from kvstored.format.errors import FormatError
from kvstored.format.superblock import SUPERBLOCK_BYTES, Superblock
from kvstored.io.device import Device
from kvstored.io.memory import AlignedMemory


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
    """The newer of the valid copies; raises FormatError when there is none, or DeviceError."""
    first_error: FormatError | None = None
    copies: list[Superblock] = []
    for page in read_end_pages(device):
        try:
            copies.append(Superblock.decode(page))
        except FormatError as error:
            first_error = first_error or error
    if not copies:
        raise first_error or FormatError("no superblock")
    return max(copies, key=lambda copy: copy.epoch)


def read_end_pages(device: Device) -> list[bytes]:
    """The first and the last whole page of a device, fewer where it is that small."""
    last_offset = (device.capacity_bytes // SUPERBLOCK_BYTES - 1) * SUPERBLOCK_BYTES
    pages: list[bytes] = []
    memory = AlignedMemory(SUPERBLOCK_BYTES)
    try:
        for offset in sorted({0, last_offset} if last_offset >= 0 else set()):
            device.readv([memory.view], offset)
            pages.append(bytes(memory.view))
    finally:
        memory.close()
    return pages
