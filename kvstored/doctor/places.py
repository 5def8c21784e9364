"""Looks at the paths that a configuration names. Opens devices for reading only, without a lock."""

import os
import stat
from pathlib import Path

from kvstored.doctor.facts import DevicePlace, FolderPlace, PlaceKind
from kvstored.io.direct_io import direct_alignment

_IN_MEMORY = {"tmpfs", "ramfs"}


def look_at_device(path: Path, *, sys: Path = Path("/sys")) -> DevicePlace:
    """The device at ``path``; ``sys`` is where the kernel shows its block devices."""
    try:
        status = path.stat()
    except OSError:
        return _absent(path, sys)
    kind = _kind_of(status.st_mode)
    if kind is PlaceKind.OTHER:
        return DevicePlace(path=path, kind=kind)
    number = status.st_rdev if kind is PlaceKind.BLOCK_DEVICE else status.st_dev
    drive = _drive_of(number, sys)
    is_usable = os.access(path, os.R_OK | os.W_OK)
    size_bytes, alignment_bytes = _opened(path) if is_usable else (status.st_size, 1)
    return DevicePlace(
        path=path,
        kind=kind,
        size_bytes=size_bytes,
        is_usable=is_usable,
        alignment_bytes=alignment_bytes,
        drive="" if drive is None else drive.name,
        write_cache=_setting(drive, "write_cache"),
        is_rotational=_setting(drive, "rotational") == "1",
    )


def look_at_folder(path: Path, *, mounts: Path = Path("/proc/self/mounts")) -> FolderPlace:
    """The nearest folder to ``path`` that is there; ``mounts`` lists the file systems."""
    folder = path
    while not (is_there := _is_folder(folder)) and is_there is not None and folder != folder.parent:
        folder = folder.parent
    if not is_there:
        return FolderPlace(path=folder, is_writable=False)
    return FolderPlace(
        path=folder,
        is_writable=os.access(folder, os.W_OK | os.X_OK),
        free_bytes=_free_bytes(folder),
        is_in_memory=_file_system_of(folder, mounts) in _IN_MEMORY,
    )


def _is_folder(path: Path) -> bool | None:
    """None where this user may not even look."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except PermissionError:
        return None
    except OSError:
        return False


def _absent(path: Path, sys: Path) -> DevicePlace:
    folder = path.parent
    is_there = _is_folder(folder)
    if is_there is None:
        return DevicePlace(path=path, kind=PlaceKind.ABSENT, free_bytes=0, is_usable=False)
    if not is_there:
        return DevicePlace(path=path, kind=PlaceKind.ABSENT)
    file_system = folder.stat().st_dev
    drive = _drive_of(file_system, sys)
    return DevicePlace(
        path=path,
        kind=PlaceKind.ABSENT,
        free_bytes=_free_bytes(folder),
        file_system=file_system,
        is_usable=os.access(folder, os.W_OK | os.X_OK),
        drive="" if drive is None else drive.name,
        write_cache=_setting(drive, "write_cache"),
        is_rotational=_setting(drive, "rotational") == "1",
    )


def _kind_of(mode: int) -> PlaceKind:
    if stat.S_ISREG(mode):
        return PlaceKind.FILE
    return PlaceKind.BLOCK_DEVICE if stat.S_ISBLK(mode) else PlaceKind.OTHER


def _opened(path: Path) -> tuple[int, int | None]:
    """Size, and alignment of direct transfers; None where there can be none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return path.stat().st_size, None
    try:
        return os.lseek(descriptor, 0, os.SEEK_END), direct_alignment(descriptor)
    finally:
        os.close(descriptor)


def _drive_of(number: int, sys: Path) -> Path | None:
    """The folder of the drive that a device number is, or is a partition of."""
    found = sys / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}"
    if not found.exists():
        return None
    folder = found.resolve()
    return folder.parent if (folder / "partition").exists() else folder


def _setting(drive: Path | None, name: str) -> str:
    try:
        return "" if drive is None else (drive / "queue" / name).read_text().strip()
    except OSError:
        return ""


def _free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _file_system_of(path: Path, mounts: Path) -> str:
    """The kind of file system that ``path`` lies on; empty where that is not known."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    found, longest = "", -1
    resolved = path.resolve()
    for line in lines:
        _, place, kind, *_ = line.split(" ")
        # Blanks in paths are written as octal numbers.
        point = Path(place.encode().decode("unicode_escape"))
        if len(place) >= longest and resolved.is_relative_to(point):
            found, longest = kind, len(place)
    return found
