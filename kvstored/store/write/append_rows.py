"""Where the rows of a snapshot go in the frames of open chunks. Pure numbers.

A frame of an open chunk lies as that of a complete one (``ChunkGeometry``), whatever it
holds so far: the values of a KV slice begin where those of a complete chunk do.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kvstored.format.geometry import ChunkGeometry
from kvstored_contract.layout import LayoutError, StateKind, StateLayout
from kvstored_contract.snapshot import SnapshotGeometry


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """Rows of an append that go to one chunk, one for each token.

    ``chunk_index`` counts the sequence's chunks, ``first_token`` the tokens of the chunk,
    ``first_row`` the rows of the snapshot.
    """

    chunk_index: int
    first_token: int
    first_row: int
    token_count: int


def chunk_rows(
    *, first_token: int, first_row: int, token_count: int, chunk_tokens: int
) -> Iterator[ChunkRows]:
    """Cuts consecutive tokens, the first at position ``first_token``, at chunk boundaries."""
    end = first_token + token_count
    while first_token < end:
        chunk_index, start = divmod(first_token, chunk_tokens)
        count = min(end - first_token, chunk_tokens - start)
        yield ChunkRows(chunk_index, start, first_row, count)
        first_token += count
        first_row += count


def completed_chunks(*, first_token: int, token_count: int, chunk_tokens: int) -> int:
    """How many chunks these tokens complete."""
    return (first_token + token_count) // chunk_tokens - first_token // chunk_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """Rows of neighbouring layers that lie at even distances on both sides.

    Row r of layer l is at ``snapshot_offset + l * snapshot_stride + r * row_bytes`` of the
    snapshot; token t of a chunk goes to ``frame_offset + l * frame_stride + t * row_bytes``
    of its frame. Layers without a state are not counted.
    """

    layer_count: int
    row_bytes: int
    snapshot_offset: int
    snapshot_stride: int
    frame_offset: int
    frame_stride: int


def row_blocks(layout: StateLayout, row_count: int) -> tuple[RowBlock, ...]:
    """The fewest blocks that cover every half and layer of a snapshot of ``row_count`` rows.

    A layout of equal layers has one block, or two if it is KV: keys and values.
    Raises as ``SnapshotGeometry``.
    """
    snapshot = SnapshotGeometry(layout, row_count)
    frame = ChunkGeometry.of(layout, layout.chunk_tokens)
    stored = [i for i, layer in enumerate(layout.layers) if layer.kind is not StateKind.NONE]
    blocks: list[RowBlock] = []
    while stored:
        first = stored[0]
        layer = layout.layers[first]
        group = next((n for n, i in enumerate(stored) if layout.layers[i] != layer), len(stored))
        # The next equal layer tells the distance, whatever empty ones lie between.
        second = stored[1] if group > 1 else first
        halves = 2 if layer.kind is StateKind.KV else 1
        row_bytes = layer.token_bytes // halves
        blocks += [
            RowBlock(
                layer_count=group,
                row_bytes=row_bytes,
                snapshot_offset=snapshot.offsets[first] + half * row_count * row_bytes,
                snapshot_stride=snapshot.offsets[second] - snapshot.offsets[first],
                frame_offset=frame.slice_offsets[first] + half * layout.chunk_tokens * row_bytes,
                frame_stride=frame.slice_offsets[second] - frame.slice_offsets[first],
            )
            for half in range(halves)
        ]
        stored = stored[group:]
    return tuple(blocks)


def check_halves(layout: StateLayout) -> None:
    """Raises LayoutError for a layout with a codec, or with odd bytes a token of a KV layer.

    Such a layer has no row of keys and none of values: its chunks are stored and read as
    they are, and tokens can be neither added to them nor taken away.
    """
    if layout.is_encoded:
        raise LayoutError(
            f"chunks of codec {layout.codec!r} cannot be cut; a sequence of this layout ends "
            "with a complete chunk, truncate it to one"
        )
    for index, layer in enumerate(layout.layers):
        if layer.kind is StateKind.KV and layer.token_bytes % 2:
            raise LayoutError(
                f"layer {index} has {layer.token_bytes} bytes a token, which cannot be halved "
                "into keys and values; a sequence of this layout ends with a complete chunk, "
                "truncate it to one"
            )


def head_moves(
    layout: StateLayout, *, source_tokens: int, target_tokens: int, token_count: int
) -> list[tuple[int, int, int]]:
    """Copies of the first ``token_count`` tokens between chunks of different lengths.

    ``source_tokens`` and ``target_tokens`` are those that each side has room for. Returns
    (source offset, target offset, bytes) from the last move to the first: done in this
    order inside one frame, from the shorter chunk to the longer one, no move overwrites
    what a later one reads. Together they fill the slices of a chunk of ``token_count``
    tokens, whatever the frame held before. Raises as ``check_halves``.
    """
    check_halves(layout)
    source = ChunkGeometry.of(layout, source_tokens)
    target = ChunkGeometry.of(layout, target_tokens)
    moves = []
    for index, layer in enumerate(layout.layers):
        halves = 2 if layer.kind is StateKind.KV else 1
        row_bytes = layer.token_bytes // halves
        moves += [
            (
                source.slice_offsets[index] + half * source_tokens * row_bytes,
                target.slice_offsets[index] + half * target_tokens * row_bytes,
                token_count * row_bytes,
            )
            for half in range(halves)
            if row_bytes
        ]
    return moves[::-1]
