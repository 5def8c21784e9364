"""How the index fails: for good, because it is damaged, or because of the circumstances."""

from pathlib import Path

import lmdb

from kvstored.store.index.entry import Table


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
    """Damage, unless the error speaks of the circumstances."""
    if isinstance(error, CIRCUMSTANCES):
        return IndexFailure(message)
    return IndexDamagedError(message)


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
