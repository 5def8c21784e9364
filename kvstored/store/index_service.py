"""Opening the index to serve from it, and closing it so that the next start is quick.

A file named ``CLEAN`` beside the index tells that it was closed in order. It exists
only while nobody serves, and is durable before the process ends: whoever finds it may
open the index without looking through it first.
"""

import os
from dataclasses import replace
from pathlib import Path

from kvstored.store.directory import sync_directory
from kvstored.store.index import DATA_FILE, Index, IndexChange
from kvstored.store.index_probe import probe_in_child

CLEAN_FILE = "CLEAN"


def open_for_service(path: Path | str, map_bytes: int) -> tuple[Index, bool]:
    """Opens or creates the index in directory ``path``; also tells whether it was clean.

    After an unclean stop a child process looks through it first. Raises
    IndexDamagedError when it is unsound: then ``set_aside`` and a rebuild help; and
    IndexFailure when it cannot be opened for another reason. An index whose
    ``meta()`` is None is new or its rebuild was interrupted: rebuild it.
    """
    directory = Path(path)
    marker = directory / CLEAN_FILE
    was_clean = marker.exists() or not (directory / DATA_FILE).exists()
    if not was_clean:
        probe_in_child(directory)
    if marker.exists():
        marker.unlink()
        sync_directory(directory)
    index = Index.open(directory, map_bytes=map_bytes)
    _mark(index, clean=False)
    return index, was_clean


def close_cleanly(index: Index) -> None:
    """Closes the index and leaves the marker, unless the index has failed."""
    if index.is_failed:
        index.close()
        return
    _mark(index, clean=True)
    index.close()
    descriptor = os.open(index.path / CLEAN_FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_directory(index.path)


def set_aside(path: Path | str) -> Path:
    """Renames the directory of an unsound index, for diagnosis, and returns its new name."""
    directory = Path(path)
    number = 1
    while (aside := directory.with_name(f"{directory.name}.damaged-{number}")).exists():
        number += 1
    directory.rename(aside)
    sync_directory(directory.parent)
    return aside


def _mark(index: Index, *, clean: bool) -> None:
    meta = index.meta()
    if meta is not None and meta.clean is not clean:
        index.apply(IndexChange(meta=replace(meta, clean=clean)))
