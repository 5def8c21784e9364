"""A device that is a preallocated file or a block device, read and written with O_DIRECT."""

import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar

from kvstored.io.device import DeviceError, DeviceFacts, KernelFile
from kvstored.io.direct_io import direct_alignment
from kvstored.io.transfer import batches, check_transfer
from kvstored_contract.limits import ALIGNMENT_BYTES

_RESERVE_STEP_BYTES = 256 * 1024 * 1024
_FILE_MODE = 0o600
LOCK_PATIENCE_S = 2.0
"""How long a device that another process has locked is waited for."""
_LOCK_POLL_S = 0.01
_LOCKED = "another process uses it; stop the other daemon or name another device"
_TAKEN = "another process uses it, or it is mounted, or part of md or LVM; free it or name another"

Result = TypeVar("Result")


class DeviceBusyError(DeviceError):
    """Another process holds the device, most likely a second daemon, or the system uses it."""


class FileDevice:
    """Implements ``Device``. Thread-safe; transfers release the interpreter lock.

    ``capacity_bytes`` never grows. After a flush that failed the device is failed
    stop: what the kernel holds of earlier writes is unknown, so that neither another
    flush nor a read could be trusted, and every call raises a sticky DeviceError.
    """

    def __init__(self, descriptor: int, facts: DeviceFacts) -> None:
        self._descriptor = descriptor
        self._facts = facts
        self._failure: str | None = None

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        capacity_bytes: int | None = None,
        readonly: bool = False,
    ) -> Self:
        """Opens and locks ``path``: alone for writing, together with others ``readonly``.

        ``capacity_bytes`` may be less than the size of the file (default: all of it).
        Raises DeviceBusyError when another has it, DeviceError for all else.
        """
        name = os.fspath(path)
        descriptor = _open(name, os.O_DIRECT | (os.O_RDONLY if readonly else os.O_RDWR))
        try:
            _lock(name, descriptor, fcntl.LOCK_SH if readonly else fcntl.LOCK_EX)
            facts = DeviceFacts(
                name,
                capacity_bytes=_capacity(name, descriptor, capacity_bytes),
                alignment_bytes=_alignment(name, descriptor),
            )
            return cls(descriptor, facts)
        except BaseException:
            os.close(descriptor)
            raise

    @property
    def facts(self) -> DeviceFacts:
        """Its path, the bytes that may be read and written, and the alignment.

        That is what ``statx`` says, or 4096 where it says nothing.
        """
        return self._facts

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Fills ``buffers`` from ``offset`` on; raises DeviceError."""
        self._transfer("read", os.preadv, buffers, offset)

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Writes ``buffers`` to ``offset``; raises DeviceError."""
        self._transfer("write", os.pwritev, buffers, offset)

    def flush(self) -> None:
        """``fdatasync``; an error makes the device fail stop."""
        self._refuse_failed("flush")
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            self._failure = f"an earlier flush failed: {error.strerror}"
            raise DeviceError(
                self._facts.name, "flush", str(error.strerror), sticky=True
            ) from error

    def kernel_file(self) -> KernelFile:
        """The file itself."""
        return KernelFile(self._descriptor, admit=self._admit, settled=lambda *_: None)

    def close(self) -> None:
        """Closes the file and thereby releases its lock."""
        os.close(self._descriptor)

    def _transfer(
        self,
        operation: str,
        call: Callable[[int, list[memoryview], int], int],
        buffers: Sequence[memoryview],
        offset: int,
    ) -> None:
        self._admit(operation, buffers, offset)
        for batch in batches(buffers):
            wanted_bytes = sum(buffer.nbytes for buffer in batch)
            try:
                moved_bytes = call(self._descriptor, batch, offset)
            except OSError as error:
                raise DeviceError(self._facts.name, operation, str(error.strerror)) from error
            if moved_bytes != wanted_bytes:
                cause = f"{moved_bytes} of {wanted_bytes} bytes at offset {offset}"
                raise DeviceError(self._facts.name, operation, cause)
            offset += moved_bytes

    def _admit(self, operation: str, buffers: Sequence[memoryview], offset: int) -> int:
        self._refuse_failed(operation)
        return check_transfer(self, operation, buffers, offset)

    def _refuse_failed(self, operation: str) -> None:
        if self._failure is not None:
            raise DeviceError(self._facts.name, operation, self._failure, sticky=True)


def reserve(path: Path | str, byte_count: int, progress: Callable[[int], None]) -> None:
    """Makes ``path`` a file of exactly ``byte_count`` bytes whose space is all allocated.

    A block device must already have them and stays as it is. ``progress`` gets the
    bytes reserved so far. Raises DeviceBusyError or DeviceError.
    """
    name = os.fspath(path)
    descriptor = _open(name, os.O_RDWR | os.O_CREAT)
    try:
        _lock(name, descriptor, fcntl.LOCK_EX)
        if stat.S_ISBLK(os.fstat(descriptor).st_mode):
            progress(_capacity(name, descriptor, byte_count))
        else:
            _allocate(name, descriptor, byte_count, progress)
    finally:
        os.close(descriptor)


def _allocate(name: str, descriptor: int, byte_count: int, progress: Callable[[int], None]) -> None:
    try:
        os.ftruncate(descriptor, byte_count)
        for start in range(0, byte_count, _RESERVE_STEP_BYTES):
            step_bytes = min(_RESERVE_STEP_BYTES, byte_count - start)
            os.posix_fallocate(descriptor, start, step_bytes)
            progress(start + step_bytes)
        os.fsync(descriptor)
        _sync_folder(Path(name).parent)
    except OSError as error:
        cause = f"{byte_count} bytes: {error.strerror}"
        raise DeviceError(name, "reserve", cause) from error


def _sync_folder(folder: Path) -> None:
    """Makes the file's name as durable as its bytes."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open(name: str, flags: int) -> int:
    """Opens it; a block device that is written is this descriptor's alone.

    File systems, md and LVM take theirs in the same way, so none of them has it meanwhile.
    """
    if flags & os.O_RDWR and _is_block_device(name):
        # With O_CREAT it would have to be new.
        flags = (flags & ~os.O_CREAT) | os.O_EXCL

    def attempt() -> int:
        return os.open(name, flags | os.O_CLOEXEC, _FILE_MODE)

    try:
        return _when_free(attempt, name, errno.EBUSY, _TAKEN)
    except DeviceError:
        raise
    except OSError as error:
        cause = str(error.strerror)
        if error.errno == errno.EINVAL and flags & os.O_DIRECT:
            cause = "its file system does not support O_DIRECT; use ext4, xfs or a block device"
        raise DeviceError(name, "open", cause) from error


def _is_block_device(name: str) -> bool:
    try:
        return stat.S_ISBLK(Path(name).stat().st_mode)
    except OSError:
        # Opening it says better what is wrong, or makes it a file.
        return False


def _lock(name: str, descriptor: int, kind: int) -> None:
    _when_free(lambda: fcntl.flock(descriptor, kind | fcntl.LOCK_NB), name, errno.EAGAIN, _LOCKED)


def _when_free(attempt: Callable[[], Result], name: str, busy: int, cause: str) -> Result:
    """Waits a while where an attempt fails with ``busy``; then raises DeviceBusyError.

    What a killed process had in flight on io_uring keeps its lock, and its device, until then.
    """
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            return attempt()
        except OSError as error:
            if error.errno != busy:
                raise
            if time.monotonic() >= deadline:
                raise DeviceBusyError(name, "open", cause) from error
        time.sleep(_LOCK_POLL_S)


def _capacity(name: str, descriptor: int, wanted_bytes: int | None) -> int:
    """The bytes wanted (default: all that there are), if the device has them."""
    size_bytes = os.lseek(descriptor, 0, os.SEEK_END)
    if wanted_bytes is not None and wanted_bytes > size_bytes:
        raise DeviceError(name, "open", f"it has {size_bytes} bytes, {wanted_bytes} are needed")
    return size_bytes if wanted_bytes is None else wanted_bytes


def _alignment(name: str, descriptor: int) -> int:
    alignment = direct_alignment(descriptor)
    if alignment is None:
        cause = "the kernel offers no O_DIRECT for it; use ext4, xfs or a block device"
        raise DeviceError(name, "open", cause)
    if ALIGNMENT_BYTES % alignment:
        cause = f"it needs transfers of {alignment} bytes, more than {ALIGNMENT_BYTES}"
        raise DeviceError(name, "open", cause)
    return alignment
