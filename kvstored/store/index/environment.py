"""Opening the LMDB environment of an index, and its tables."""

from pathlib import Path
from typing import Any

import lmdb

from kvstored.store.index.entry import Table

DATA_FILE = "data.mdb"
LOCK_FILE = "lock.mdb"
READERS_MAX = 65_536
"""Read transactions at the same time, more than the daemon ever has threads.

Each lasts for one call or one batch of a walk; a place for one takes 64 bytes of a file.
"""
DELETION_RESERVE_BYTES = 256 * 1024
"""What the map has beyond the pages in use when it is opened, however small it is configured. A
deletion copies pages before it frees any: without a free one nothing could ever make room."""


def open_environment(directory: Path, *, map_bytes: int, readonly: bool) -> lmdb.Environment:
    """Opens it; creates it unless ``readonly``. Raises lmdb.Error and OSError.

    The map is larger than ``map_bytes`` where its pages in use leave nothing for deletions.
    """
    if not readonly:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    environment = lmdb.Environment(
        str(directory),
        map_size=map_bytes,
        readonly=readonly,
        create=not readonly,
        mode=0o600,
        max_dbs=len(Table),
        max_readers=READERS_MAX,
    )
    if not readonly:
        info = environment.info()
        least_bytes = used_bytes(environment) + DELETION_RESERVE_BYTES
        if info["map_size"] < least_bytes:
            environment.set_mapsize(least_bytes)
    return environment


def used_bytes(environment: lmdb.Environment) -> int:
    """Of the map, what some page has ever taken."""
    return int((environment.info()["last_pgno"] + 1) * environment.stat()["psize"])


def open_tables(environment: lmdb.Environment, *, readonly: bool) -> dict[Table, Any]:
    """Every table; raises lmdb.Error.

    Lengths of slices are absent from an index of a version without codecs that is only
    read: it has none.
    """
    tables = {}
    for table in Table:
        try:
            tables[table] = environment.open_db(table.value, create=not readonly)
        except lmdb.NotFoundError:
            if table is not Table.LENGTHS:
                raise
    return tables
