"""Where the slices of stored chunks lie in their extents."""

from collections.abc import Sequence

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.geometry import ChunkGeometry, LengthBounds
from kvstored.format.identity import ChunkId
from kvstored.store.index.index import Index
from kvstored_contract.layout import StateLayout


def stored_geometries(
    index: Index, entries: Sequence[tuple[ChunkId, ChunkRecord]], layout: StateLayout
) -> list[ChunkGeometry | None]:
    """Geometry of each of these chunks of a layout.

    None where the layout has a codec and the index does not know the lengths of the slices,
    or such as no chunk of the layout has: the chunk can never be read. Raises IndexFailure.
    """
    if not layout.is_encoded:
        return [ChunkGeometry.of(layout, record.token_count) for _, record in entries]
    bounds = LengthBounds.of(layout)
    return [
        None
        if lengths is None or bounds.problem(lengths) is not None
        else ChunkGeometry.of_slices(lengths)
        for lengths in index.lengths(entries)
    ]
