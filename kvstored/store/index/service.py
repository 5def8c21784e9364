"""Opening the index to serve from it, and closing it so that the next start is quick.

A file named ``CLEAN`` beside the index tells that it was closed in order, and with which
bytes. It exists only while nobody serves, and is durable before the process ends. A start
that finds it, and the index's file still as it says, may open the index without looking
through it first. A snapshot beside it saves the walk through the index. Both names are gone,
durably, before the index changes.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import xxhash

from kvstored.format.errors import FormatError
from kvstored.store.index.aside import begin_build
from kvstored.store.index.damage_mark import refuse_marked
from kvstored.store.index.directory import sync_directory
from kvstored.store.index.index import DATA_FILE, Index, IndexChange, IndexFailure
from kvstored.store.index.probe import OnScanned, probe_in_child
from kvstored.store.index.snapshot import (
    SnapshotHead,
    open_snapshot,
    read_snapshot,
    remove_snapshot,
    write_snapshot,
)
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.store.space.claim_block import ClaimBlock

LOGGER = logging.getLogger(__name__)

CLEAN_FILE = "CLEAN"
_SEAL_PART_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A snapshot of the index as it is: the first free stamp, and a part of its claims each.

    Taking the claims raises FormatError or OSError where the file is damaged; then none
    of them counts.
    """

    next_stamp: int
    claims: Iterator[ClaimBlock]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedIndex:
    """An index to serve from. Unless it ``was_clean`` a child process has looked through it."""

    index: Index
    was_clean: bool
    snapshot: Snapshot | None


def accept(_: Index) -> None:
    """Whatever index it is."""


def open_for_service(
    path: Path | str,
    map_bytes: int,
    on_scanned: OnScanned,
    *,
    verify: Callable[[Index], None] = accept,
) -> OpenedIndex:
    """Opens or creates the index in directory ``path``, which the caller has locked.

    One that was found damaged while it was served is not opened (``damage_mark``). After
    an unclean stop a child process looks through it first; ``on_scanned`` gets what it
    finds. ``verify`` may refuse what was opened: the index is closed when it raises.
    Raises IndexDamagedError when the index is unsound: then ``clear_away`` and a rebuild
    help; and IndexFailure when it cannot be opened for another reason. An index whose
    ``meta()`` is None is new or its rebuild was interrupted: rebuild it.
    """
    directory = Path(path)
    refuse_marked(directory)
    is_new = not (directory / DATA_FILE).exists()
    was_clean = is_new or _is_as_left(directory)
    if not was_clean:
        probe_in_child(directory, on_scanned)
    # What is open can be read after its name is gone.
    file = open_snapshot(directory) if was_clean else None
    with ExitStack() as opened:
        if file is not None:
            opened.callback(file.close)
        if directory.exists():
            _forget_the_stop(directory)
        if is_new:
            begin_build(directory)
        index = _open_verified(directory, map_bytes, verify)
        opened.callback(index.close)
        snapshot = None if file is None else _current_snapshot(index, file)
        _mark(index, clean=False)
        opened.pop_all()
    return OpenedIndex(index=index, was_clean=was_clean, snapshot=snapshot)


def close_cleanly(index: Index, table: ChunkTable, next_stamp: int) -> None:
    """Closes the index and leaves marker and snapshot, unless the index has failed.

    ``table`` has the chunks of the index; ``next_stamp`` is above every stamp in it.
    Nothing may change either any more.
    """
    if index.is_failed:
        index.close()
        return
    try:
        _mark(index, clean=True)
        _leave_snapshot(index, table, next_stamp)
    except BaseException:
        index.close()
        raise
    # Nobody may serve from it before the marker lies there.
    lock, index.lock = index.lock, None
    try:
        index.close()
        _leave_seal(index.path)
    except OSError as error:
        LOGGER.warning(
            "%s is not marked as closed in order, so the next start looks through it: %s",
            index.path,
            error,
        )
    finally:
        if lock is not None:
            lock.release()


def _leave_seal(directory: Path) -> None:
    """Marks the closed index, durably; what a failure leaves has no seal, or a wrong one."""
    descriptor = os.open(
        directory / CLEAN_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
    )
    try:
        os.write(descriptor, _seal(directory))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(directory)


def _forget_the_stop(directory: Path) -> None:
    """What the last stop left goes, durably, before the index changes; raises IndexFailure."""
    try:
        (directory / CLEAN_FILE).unlink(missing_ok=True)
        remove_snapshot(directory)
        sync_directory(directory)
    except OSError as error:
        raise IndexFailure(
            f"cannot change the folder of the index {directory}: {error}; is it read-only?"
        ) from error


def _open_verified(directory: Path, map_bytes: int, verify: Callable[[Index], None]) -> Index:
    index = Index.open(directory, map_bytes=map_bytes)
    try:
        verify(index)
    except BaseException:
        index.close()
        raise
    return index


def _is_as_left(directory: Path) -> bool:
    """Whether the last stop was clean and the index's file is still what it left.

    A marker without a seal is what a stop leaves that was cut short. What cannot be read may
    be damaged: the child process tells.
    """
    try:
        seal = (directory / CLEAN_FILE).read_bytes()
        if not seal or seal == _seal(directory):
            return bool(seal)
    except FileNotFoundError:
        return False
    except OSError as error:
        LOGGER.warning("the index in %s cannot be read as a whole: %s", directory, error)
        return False
    LOGGER.warning("the index in %s is not as the last stop left it", directory)
    return False


def _seal(directory: Path) -> bytes:
    """A checksum of the index's file: reading a damaged map can end the process."""
    sum_of_all = xxhash.xxh3_64()
    with (directory / DATA_FILE).open("rb", buffering=0) as file:
        while part := file.read(_SEAL_PART_BYTES):
            sum_of_all.update(part)
    return sum_of_all.hexdigest().encode()


def _current_snapshot(index: Index, file: IO[bytes]) -> Snapshot | None:
    """The snapshot in a file if it is that of the index as it is now; else the file is closed."""
    with suppress(FormatError, OSError):
        head, claims = read_snapshot(file)
        if head == _head(index, head.next_stamp):
            return Snapshot(next_stamp=head.next_stamp, claims=_closing(file, claims))
    LOGGER.warning("the snapshot in %s is not that of the index; it is not used", index.path)
    file.close()
    return None


def _closing(file: IO[bytes], claims: Iterator[ClaimBlock]) -> Iterator[ClaimBlock]:
    with file:
        yield from claims


def _leave_snapshot(index: Index, table: ChunkTable, next_stamp: int) -> None:
    """Writes a snapshot if the table knows all chunks of the index.

    It does not where a device has failed or a record is damaged.
    """
    head = _head(index, next_stamp)
    if head is None or head.chunk_count != len(table):
        LOGGER.info("no snapshot is left: the next start walks through the index")
        return
    try:
        write_snapshot(index.path, head, table.blocks())
    except OSError as error:
        LOGGER.warning("no snapshot is left in %s: %s", index.path, error)


def _head(index: Index, next_stamp: int) -> SnapshotHead | None:
    """What a snapshot of the index as it is has in its header."""
    meta = index.meta()
    if meta is None:
        return None
    return SnapshotHead(
        set_id=meta.set_id,
        epoch=meta.epoch,
        revision=index.revision,
        chunk_count=index.usage.chunk_count,
        next_stamp=next_stamp,
    )


def _mark(index: Index, *, clean: bool) -> None:
    meta = index.meta()
    if meta is not None and meta.clean is not clean:
        index.apply(IndexChange(meta=replace(meta, clean=clean)))
