"""The lock of an index: one process serves from it, or makes another one in its place.

Daemons of the same devices are kept apart by the locks of these. Two of other devices may name the
same directory for their index, and the second would set aside what the first one serves from.

It is a lock of the kernel (``flock``) on the directory itself, which has no file for it. It ends
with the process, whose children do not have it. A directory that gets another name keeps it.
"""

import fcntl
import os
import time
from pathlib import Path
from typing import Self

from kvstored.store.index.failure import IndexFailure

LOCK_PATIENCE_S = 2.0
"""How long an index that another process has is waited for: one that was ended may still be going
away, as with the lock of a device (``file_device``)."""
_LOCK_POLL_S = 0.01


class IndexLock:
    """The lock of the index in ``directory``, from the constructor to ``release``. Not thread-safe.

    The directory is made where it is absent. Waits LOCK_PATIENCE_S for who has it. Raises
    IndexFailure.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = _locked(directory)

    def renew(self) -> None:
        """Locks the directory that has the name by now; raises IndexFailure.

        The one that had it before is free then.
        """
        held = self._descriptor
        assert held is not None
        try:
            is_in_place = _is_in_place(held, self._directory)
        except OSError as error:
            raise _not_locked(self._directory, error) from error
        # A lock of the same directory, once more, would find it locked.
        if not is_in_place:
            self._descriptor = _locked(self._directory)
            os.close(held)

    def release(self) -> None:
        """Lets it go; again has no effect."""
        held, self._descriptor = self._descriptor, None
        if held is not None:
            os.close(held)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _locked(directory: Path) -> int:
    """A descriptor of the directory, which is locked as long as that is open."""
    deadline = time.monotonic() + LOCK_PATIENCE_S
    while True:
        descriptor = _opened(directory)
        try:
            _lock(descriptor, directory, deadline)
            if _is_in_place(descriptor, directory):
                return descriptor
        except OSError as error:
            os.close(descriptor)
            raise _not_locked(directory, error) from error
        except BaseException:
            os.close(descriptor)
            raise
        # Its holder has set it aside since it was opened.
        os.close(descriptor)


def _lock(descriptor: int, directory: Path, deadline: float) -> None:
    """Locks an opened directory by the deadline; raises IndexFailure and OSError."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise IndexFailure(
                    f"another process serves from the index in {directory}; stop it, or name "
                    "another place in store.index"
                ) from error
        else:
            return
        time.sleep(_LOCK_POLL_S)


def _opened(directory: Path) -> int:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise IndexFailure(f"cannot create the index in {directory}: {error}") from error


def _is_in_place(descriptor: int, directory: Path) -> bool:
    """Whether an opened directory still has its name; raises OSError."""
    try:
        return os.path.samestat(os.fstat(descriptor), directory.stat())
    except FileNotFoundError:
        return False


def _not_locked(directory: Path, error: OSError) -> IndexFailure:
    return IndexFailure(f"cannot lock the index in {directory}: {error}")
