"""How the index fails: for good, because it is damaged, or because of the circumstances."""

import errno
import os
from pathlib import Path

import lmdb

from kvstored.store.index.entry import Table

MEDIUM_ERRORS = frozenset((errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENODATA, errno.EREMOTEIO))
"""What reads fail with where the medium has lost the bytes."""
_EMPTY_FILE_ERROR = errno.EBADF
"""What LMDB fails with where it only reads a file of no bytes: it wants to write its first page."""
_NUMBERS = {os.strerror(number): number for number in errno.errorcode}
"""Of the system's errors, by what LMDB says of them."""


class IndexFailure(RuntimeError):  # noqa: N818 - a state that lasts, not the error of one call
    """The index cannot be read or written.

    After a failed write it stays so until it is opened again, except when it was full.
    """


class IndexFullError(IndexFailure):
    """The map has no room for a change, of which nothing happened; a smaller one may fit."""


class IndexDamagedError(IndexFailure):
    """The files of the index are not what they should be: set them aside and rebuild."""


CIRCUMSTANCES = (
    lmdb.DiskError,
    lmdb.InvalidParameterError,
    lmdb.LockError,
    lmdb.MemoryError,
    lmdb.ReadersFullError,
    lmdb.ReadonlyError,
    OSError,
)
"""What LMDB raises for permissions, memory and the like: the files may be sound."""


DAMAGE = (
    lmdb.CorruptedError,
    lmdb.CursorFullError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageFullError,
    lmdb.PageNotFoundError,
)
"""What LMDB raises for pages that cannot be: no circumstance explains it."""


def write_failure_of(message: str, error: lmdb.Error | OSError) -> IndexFailure:
    """Damage only where the error says so: the rest may be the device's or the system's."""
    return IndexDamagedError(message) if isinstance(error, DAMAGE) else IndexFailure(message)


def failure_of(message: str, error: lmdb.Error | OSError) -> IndexFailure:
    """Damage, unless the error speaks of the circumstances.

    An error of the system is one of them, but where the medium has lost bytes, or the file all.
    """
    if isinstance(error, CIRCUMSTANCES):
        return IndexFailure(message)
    number = _system_number(error)
    if number is None or number in MEDIUM_ERRORS or number == _EMPTY_FILE_ERROR:
        return IndexDamagedError(message)
    return IndexFailure(message)


def _system_number(error: Exception) -> int | None:
    """The number of an error of the system that LMDB has passed on; None for one of its own.

    Older bindings have no ``code``: what they say ends with the system's words.
    """
    code = getattr(error, "code", None)
    if code is None:
        return _NUMBERS.get(str(error).rpartition(": ")[2])
    return int(code) if code > 0 else None


def out_of_order(path: Path, table: Table) -> IndexDamagedError:
    """Keys of a table do not ascend."""
    return IndexDamagedError(
        f"table {table.name} of the index in {path} is out of order; rebuild the index"
    )


def miscounted(
    path: Path, table: Table, walked_count: int, claimed_count: int
) -> IndexDamagedError:
    """A table has not as many entries as LMDB says."""
    return IndexDamagedError(
        f"table {table.name} of the index in {path} has {walked_count} entries "
        f"but claims {claimed_count}; rebuild the index"
    )
