"""A small file system of one's own: it can be filled to the last byte, and it can die."""

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Self

import pytest

_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN: from now on every call on the file system fails."""
_WITHOUT_LOG = struct.pack("I", 2)
_TOOLS = ("losetup", "mkfs.ext4", "mount", "umount")


def obstacle() -> str | None:
    """Why there can be no file systems here; None when there can."""
    if os.geteuid() != 0:
        return "only root may mount file systems"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} is not installed"
    if subprocess.run(["losetup", "-f"], capture_output=True, check=False).returncode != 0:
        return "there are no loop devices"
    return None


class SmallFileSystem:
    """An ext4 in a file in ``folder``, mounted at ``folder/mounted`` while in the context."""

    def __init__(self, folder: Path, byte_count: int) -> None:
        self.image = folder / "image"
        self.path = folder / "mounted"
        folder.mkdir(parents=True, exist_ok=True)
        self.path.mkdir()
        with self.image.open("wb") as file:
            file.truncate(byte_count)
        run("mkfs.ext4", "-q", "-F", "-m", "0", str(self.image))
        self._is_mounted = False

    def mount(self) -> None:
        """Mounts it; skips the test where that is forbidden."""
        result = subprocess.run(
            ["mount", "-o", "loop", str(self.image), str(self.path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            pytest.skip(f"file systems cannot be mounted here: {result.stderr.strip()}")
        self._is_mounted = True

    def unmount(self) -> None:
        """Unmounts it; its loop device goes with it."""
        if self._is_mounted:
            run("umount", str(self.path))
            self._is_mounted = False

    def fill(self, name: str = "filler") -> Path:
        """Takes every free block with one file, and returns that."""
        filler = self.path / name
        descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for step_bytes in (1 << 20, 1 << 16, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        os.write(descriptor, bytes(step_bytes))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return filler

    def shut_down(self) -> None:
        """Every later read, write and flush of its files fails, until it is mounted again."""
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _WITHOUT_LOG)
        finally:
            os.close(descriptor)

    def __enter__(self) -> Self:
        self.mount()
        return self

    def __exit__(self, *_: object) -> None:
        self.unmount()


class BlockDevice:
    """A loop device over a file in a small file system, so that it can die and come back.

    ``path`` is a name that stays, whatever number the loop device has. The device is
    there while in the context.
    """

    def __init__(self, folder: Path, path: Path, byte_count: int) -> None:
        self._file_system = SmallFileSystem(folder, byte_count * 5 // 4 + (8 << 20))
        self._file = self._file_system.path / "drive"
        self._byte_count = byte_count
        self._loop: str | None = None
        self.path = path

    def attach(self) -> None:
        """Makes the device appear."""
        self._file_system.mount()
        with self._file.open("ab") as file:
            os.posix_fallocate(file.fileno(), 0, self._byte_count)
            os.fsync(file.fileno())
        self._loop = run("losetup", "-f", "--show", str(self._file)).strip()
        self.path.unlink(missing_ok=True)
        self.path.symlink_to(self._loop)

    def detach(self) -> None:
        """Makes the device disappear; nobody may have it open."""
        if self._loop is not None:
            run("losetup", "-d", self._loop)
            self._loop = None
        self.path.unlink(missing_ok=True)
        self._file_system.unmount()

    def die(self) -> None:
        """Every later read, write and flush fails, also for those who have it open."""
        self._file_system.shut_down()

    def __enter__(self) -> Self:
        try:
            self.attach()
        except BaseException:
            self.detach()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()


def run(*command: str) -> str:
    """The output of a command that must succeed."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(command)}: {result.stderr}"
    return result.stdout
