"""What becomes of the directory of an unsound index: kept for diagnosis, unless never finished.

A file named ``UNFINISHED`` lies in the directory from before the index is created until all that
the devices hold is in it. What a kill or a cut of power leaves of such an index may look
damaged, and has nothing that the devices do not have.
"""

import logging
from contextlib import suppress
from pathlib import Path

from kvstored.store.index.damage_mark import DAMAGE_FILE
from kvstored.store.index.directory import sync_directory
from kvstored.store.index.environment import DATA_FILE, LOCK_FILE
from kvstored.store.index.failure import IndexDamagedError, IndexFailure

LOGGER = logging.getLogger(__name__)

UNFINISHED_FILE = "UNFINISHED"
ASIDE_MAX = 8
"""Damaged indexes that are kept at most."""
_LMDB_FILES = (DATA_FILE, LOCK_FILE)
"""All that an index has before it was served for the first time."""


def begin_build(directory: Path) -> None:
    """Makes the directory of a new index, durably marked as not finished; raises IndexFailure."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / UNFINISHED_FILE).touch(mode=0o600)
        sync_directory(directory)
        sync_directory(directory.parent)
    except OSError as error:
        raise IndexFailure(f"cannot create the index in {directory}: {error}") from error


def end_build(directory: Path) -> None:
    """The index has all that it should have; it need not have been new. Raises IndexFailure."""
    try:
        (directory / UNFINISHED_FILE).unlink()
        sync_directory(directory)
    except FileNotFoundError:
        return
    except OSError as error:
        raise IndexFailure(f"cannot finish the index in {directory}: {error}") from error


def clear_away(directory: Path, error: IndexDamagedError) -> None:
    """Makes room for another index where one is unsound: removes it or sets it aside.

    One is also kept that was found damaged while it was built: no kill leaves that. Raises
    IndexFailure.
    """
    is_unfinished = (directory / UNFINISHED_FILE).exists()
    if is_unfinished and not (directory / DAMAGE_FILE).exists():
        _remove(directory)
        LOGGER.warning("%s; it was never finished and is removed", error)
        return
    LOGGER.warning("%s; it is kept as %s", error, set_aside(directory))


def set_aside(directory: Path) -> Path:
    """Keeps an unsound index for diagnosis, under the path that it returns.

    Its directory gets another name. A mount point, or a directory in one that may not be
    written to, keeps its name: there the index's own files move into a directory inside it.
    Raises IndexFailure where neither is possible, and where ASIDE_MAX lie there already: what
    damages one index after the other must not fill the file system with them.
    """
    beside = _free_name(directory, directory.with_name(f"{directory.name}.damaged"))
    try:
        directory.rename(beside)
    except OSError as error:
        LOGGER.warning("%s cannot have another name: %s", directory, error)
        return _set_aside_inside(directory)
    try:
        sync_directory(beside.parent)
    except OSError as error:
        raise _not_kept(directory, beside, error) from error
    return beside


def _set_aside_inside(directory: Path) -> Path:
    """Moves the files, the data before the mark that they are damaged."""
    inside = _free_name(directory, directory / "damaged")
    try:
        inside.mkdir(mode=0o700)
        for name in (*_LMDB_FILES, DAMAGE_FILE):
            with suppress(FileNotFoundError):
                (directory / name).rename(inside / name)
        sync_directory(inside)
        sync_directory(directory)
    except OSError as error:
        raise _not_kept(directory, inside, error) from error
    return inside


def _free_name(directory: Path, stem: Path) -> Path:
    """The first of ``stem``-1 and so on that does not exist."""
    names = (stem.with_name(f"{stem.name}-{n + 1}") for n in range(ASIDE_MAX))
    free = next((name for name in names if not name.exists()), None)
    if free is None:
        raise IndexFailure(
            f"the index in {directory} is damaged, as {ASIDE_MAX} before it that are kept; "
            f"look for the cause (memory, medium), then remove {stem}-* and start again"
        )
    return free


def _not_kept(directory: Path, kept: Path, error: OSError) -> IndexFailure:
    return IndexFailure(
        f"the damaged index in {directory} cannot be kept as {kept}: {error}; move its files away "
        "and start again"
    )


def _remove(directory: Path) -> None:
    """Only the index's own files: who knows what else lies there. Directory and mark stay."""
    try:
        for name in _LMDB_FILES:
            (directory / name).unlink(missing_ok=True)
        sync_directory(directory)
    except OSError as error:
        raise IndexFailure(
            f"the unfinished index in {directory} cannot be removed: {error}; remove it and start "
            "again"
        ) from error
