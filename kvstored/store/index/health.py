"""Whether the index can still be read and written, and what becomes of the errors of that."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from kvstored.store.index.damage_mark import leave_mark
from kvstored.store.index.failure import (
    DAMAGE,
    IndexDamagedError,
    IndexFailure,
    IndexFullError,
    failure_of,
    write_failure_of,
)


class IndexHealth:
    """Turns LMDB's errors into those of the index, and remembers the first failed write.

    Damage is marked beside the index unless it is ``readonly``: the next start rebuilds it.
    """

    def __init__(self, path: Path, *, map_bytes: int, readonly: bool) -> None:
        self._path = path
        self._map_bytes = map_bytes
        self._readonly = readonly
        self.failure: str | None = None
        """Why every later write is refused, if it is."""

    def unreadable(self, error: lmdb.Error) -> IndexFailure:
        """What to raise where LMDB cannot read."""
        message = f"cannot read the index in {self._path}: {error}"
        self._mark_damage(message, error)
        return failure_of(message, error)

    def damaged(self, error: IndexDamagedError) -> IndexDamagedError:
        """What was found to be damaged though LMDB took it for sound; to be raised."""
        self._mark(str(error))
        return error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Around one write transaction; the caller sees to it that there is one at a time.

        Raises IndexFailure, and the same again before each later one.
        """
        if self.failure is not None:
            raise IndexFailure(self.failure)
        try:
            yield
        except lmdb.MapFullError as error:
            # The transaction is aborted and nothing of it written: the next may fit.
            raise IndexFullError(
                f"the index in {self._path} is full at {self._map_bytes} bytes; "
                "restart with a larger store.index_map_bytes"
            ) from error
        except (lmdb.Error, OSError) as error:
            self.failure = f"cannot write the index in {self._path}: {error}"
            self._mark_damage(self.failure, error)
            raise write_failure_of(self.failure, error) from error

    def _mark_damage(self, message: str, error: lmdb.Error | OSError) -> None:
        if isinstance(error, DAMAGE):
            self._mark(message)

    def _mark(self, cause: str) -> None:
        if not self._readonly:
            leave_mark(self._path, cause)
