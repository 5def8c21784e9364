"""Rows of the table of chunks that belong to one account, in the order of their last use."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kvstored.format.identity import NAMESPACE_ID_BYTES, ChunkId
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.tiers.policy.shares import OTHERS
from kvstored.tiers.policy.use_order import RowTimes


def in_namespace(
    table: ChunkTable, segment: int, indices: NDArray[np.int64], namespace_id: bytes
) -> NDArray[np.bool_]:
    """Which rows of a segment, by their index in it, are a namespace's; shapes [n], [n]."""
    return _are_of(_namespaces(table, segment, indices), namespace_id)


def _namespaces(table: ChunkTable, segment: int, indices: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The namespace ids of rows as two numbers each, shape [n, 2]: many bytes compare slowly."""
    ids = table.columns.segments[segment].id_rows()[indices, :NAMESPACE_ID_BYTES]
    return np.ascontiguousarray(ids).view(np.uint64)


def _are_of(namespaces: NDArray[np.uint64], namespace_id: bytes) -> NDArray[np.bool_]:
    first, second = np.frombuffer(namespace_id, np.uint64)
    is_own: NDArray[np.bool_] = (namespaces[:, 0] == first) & (namespaces[:, 1] == second)
    return is_own


class AccountRows:
    """Implements ``UsedChunks`` for the chunks of one namespace, or of all without a quota.

    ``named`` are the namespaces with one. Memory for no chunk: rows are told apart when the order
    asks for them.
    """

    def __init__(self, table: ChunkTable, account: bytes, named: Sequence[bytes]) -> None:
        self._table = table
        self._account = account
        self._named = tuple(named)

    @property
    def times(self) -> RowTimes:
        """Those of all rows: ``is_of_class`` leaves the others out."""
        return self._table.times

    @property
    def clock(self) -> int:
        """The time of the next use."""
        return self._table.clock

    def row_count(self, class_bytes: int | None, /) -> int:
        """Chunks of one size class, or of all, those of other accounts included."""
        return self._table.row_count(class_bytes)

    def is_of_class(
        self, segment: int, indices: NDArray[np.int64], class_bytes: int | None, /
    ) -> NDArray[np.bool_]:
        """Which rows are of the class, or of any, and of the account."""
        is_wanted = self._table.is_of_class(segment, indices, class_bytes)
        if self._account != OTHERS:
            return is_wanted & in_namespace(self._table, segment, indices, self._account)
        namespaces = _namespaces(self._table, segment, indices)
        for name in self._named:
            is_wanted &= ~_are_of(namespaces, name)
        return is_wanted

    def touch(
        self, identities: Sequence[bytes], /, *, holds: bool = False, together: bool = False
    ) -> None:
        """As ``UsedChunks``."""
        self._table.touch(identities, holds=holds, together=together)

    def use(self, row: int, /) -> tuple[ChunkId, int]:
        """The chunk in a row that is in use, and the time of its last use."""
        return self._table.use(row)


def bytes_of(table: ChunkTable, namespace_id: bytes) -> int:
    """Bytes of all chunks of a namespace. Looks at every row."""
    own = np.frombuffer(namespace_id, np.uint8)
    return sum(
        int(block.byte_counts[(block.identities[:, :NAMESPACE_ID_BYTES] == own).all(axis=1)].sum())
        for block in table.blocks()
    )


def bytes_of_all(table: ChunkTable) -> int:
    """Bytes of all chunks. Looks at every slab."""
    slabs = table.slabs
    return sum(
        slabs.chunk_count(slab) * slabs.class_bytes_of(slab)
        for slab in range(table.geometry.slab_count)
    )
