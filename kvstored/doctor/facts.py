"""What is known of a machine, and of the places that a configuration names. Pure values."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """Kernel, memory and limits of the process that looked."""

    kernel_release: str
    io_uring_error: str | None
    """Why the system refuses io_uring; None where it does not."""
    physical_bytes: int
    available_bytes: int
    """Memory that programs could take now, page cache included."""
    group_room_bytes: int | None
    """What the control group still grants; None without a limit."""
    huge_page_pool_bytes: int
    """Huge pages of 2 MiB that the kernel holds ready, or may make when asked."""
    open_files_max: int
    is_clock_set: bool | None
    """Whether the kernel says that something keeps the clock right; None if it says nothing."""


class PlaceKind(StrEnum):
    """What lies at the path of a device."""

    FILE = "file"
    BLOCK_DEVICE = "block device"
    ABSENT = "absent"
    OTHER = "something else"


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlace:
    """The path of a device; of one that is absent most is that of its folder."""

    path: Path
    kind: PlaceKind
    size_bytes: int = 0
    free_bytes: int | None = None
    """Of the file system that one that is absent would lie on; None without a folder for it."""
    file_system: int = 0
    """Number of that file system: what is made there shares the free bytes."""
    is_usable: bool = True
    """Whether the user who looked may read and write it, or make it."""
    alignment_bytes: int | None = 1
    """Of transfers that bypass the page cache; None where there can be none."""
    drive: str = ""
    """The drive below it, as the kernel calls it; empty where it has none."""
    write_cache: str = ""
    """``write back``, ``write through``, or empty where the kernel does not say."""
    is_rotational: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderPlace:
    """The folder nearest to where the daemon makes something: it makes those below."""

    path: Path
    is_writable: bool
    free_bytes: int = 0
    is_in_memory: bool = False
    """Whether its file system is lost with the power."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that is looked at. ``is_serving``: a daemon answers there, and has its memory."""

    machine: MachineFacts
    devices: tuple[DevicePlace, ...]
    index: FolderPlace
    sockets: tuple[FolderPlace, ...]
    is_serving: bool = False
