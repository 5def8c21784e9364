"""Where rows go: checked against a plain computation for each token."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.format.geometry import ChunkGeometry, class_bytes
from kvstored.store.write.append_rows import (
    ChunkRows,
    check_halves,
    chunk_rows,
    completed_chunks,
    head_moves,
    row_blocks,
)
from kvstored.store.write.row_copies import LONG_RANGE_TOKENS, RowRange, copy_rows
from kvstored_contract.layout import LayerState, LayoutError, StateKind, StateLayout
from kvstored_contract.snapshot import SnapshotGeometry

LAYERS = st.sampled_from(
    [
        LayerState(StateKind.KV, 2),
        LayerState(StateKind.KV, 128),
        LayerState(StateKind.KV, 5002),
        LayerState(StateKind.HIDDEN, 1),
        LayerState(StateKind.HIDDEN, 128),
        LayerState(StateKind.NONE, 0),
    ]
)
CHUNK_TOKENS = 12


def layout_of(layers: list[LayerState]) -> StateLayout:
    return StateLayout(model="m", dtype="f", layers=tuple(layers), chunk_tokens=CHUNK_TOKENS)


LAYOUTS = (
    st.lists(LAYERS, min_size=1, max_size=7)
    .filter(lambda layers: any(layer.token_bytes for layer in layers))
    .map(layout_of)
)


@given(first=st.integers(0, 100), count=st.integers(1, 100), row=st.integers(0, 9))
def test_pieces_cover_each_token_once(first: int, count: int, row: int) -> None:
    found = [
        (piece.chunk_index * CHUNK_TOKENS + piece.first_token + step, piece.first_row + step)
        for piece in chunk_rows(
            first_token=first, first_row=row, token_count=count, chunk_tokens=CHUNK_TOKENS
        )
        for step in range(piece.token_count)
    ]
    assert found == [(first + step, row + step) for step in range(count)]


@given(first=st.integers(0, 100), count=st.integers(1, 100))
def test_completed_chunks_are_the_pieces_that_reach_an_end(first: int, count: int) -> None:
    parts = list(
        chunk_rows(first_token=first, first_row=0, token_count=count, chunk_tokens=CHUNK_TOKENS)
    )
    full = [part for part in parts if part.first_token + part.token_count == CHUNK_TOKENS]
    assert len(full) == completed_chunks(
        first_token=first, token_count=count, chunk_tokens=CHUNK_TOKENS
    )
    assert (
        ChunkRows(first // CHUNK_TOKENS, first % CHUNK_TOKENS, 0, parts[0].token_count) == parts[0]
    )


def places(layout: StateLayout, chunk_tokens: int, token: int) -> list[tuple[int, int]]:
    """(offset in the chunk, bytes) of each half of each layer of one token, by its definition."""
    offsets = ChunkGeometry.of(layout, chunk_tokens).slice_offsets
    return halves_at(layout, offsets, chunk_tokens, token)


def halves_at(
    layout: StateLayout, offsets: tuple[int, ...], count: int, position: int
) -> list[tuple[int, int]]:
    found = []
    for start, layer in zip(offsets, layout.layers, strict=False):
        if layer.kind is StateKind.KV:
            half = layer.token_bytes // 2
            found.append((start + position * half, half))
            found.append((start + (count + position) * half, half))
        elif layer.kind is StateKind.HIDDEN:
            found.append((start + position * layer.token_bytes, layer.token_bytes))
    return found


@given(LAYOUTS, st.integers(1, 9), st.data())
def test_rows_arrive_where_their_tokens_lie(
    layout: StateLayout, row_count: int, data: st.DataObject
) -> None:
    frame_bytes = class_bytes(layout)
    geometry = SnapshotGeometry(layout, row_count)
    snapshot = np.frombuffer(np.random.default_rng(1).bytes(geometry.byte_count), np.uint8)
    memory = np.zeros(3 * frame_bytes, np.uint8)
    expected = memory.copy()
    ranges = []
    for frame in data.draw(st.lists(st.integers(0, 2), unique=True, max_size=3)):
        count = data.draw(st.integers(1, row_count))
        first_token = data.draw(st.integers(0, CHUNK_TOKENS - count))
        first_row = data.draw(st.integers(0, row_count - count))
        ranges.append(RowRange(frame * frame_bytes, first_token, first_row, count))
        for step in range(count):
            sources = halves_at(layout, geometry.offsets, row_count, first_row + step)
            targets = places(layout, CHUNK_TOKENS, first_token + step)
            for (source, size), (target, _) in zip(sources, targets, strict=True):
                start = frame * frame_bytes + target
                expected[start : start + size] = snapshot[source : source + size]
    copy_rows(snapshot=snapshot, memory=memory, blocks=row_blocks(layout, row_count), ranges=ranges)
    assert np.array_equal(memory, expected)


@pytest.mark.parametrize("count", [LONG_RANGE_TOKENS - 1, LONG_RANGE_TOKENS])
def test_both_ways_of_copying_bring_all_rows(count: int) -> None:
    layout = layout_of([LayerState(StateKind.HIDDEN, 3), LayerState(StateKind.KV, 4)])
    geometry = SnapshotGeometry(layout, count)
    snapshot = np.frombuffer(np.random.default_rng(1).bytes(geometry.byte_count), np.uint8)
    memory = np.zeros(class_bytes(layout), np.uint8)
    ranges = [RowRange(0, CHUNK_TOKENS - count, 0, count)]
    copy_rows(snapshot=snapshot, memory=memory, blocks=row_blocks(layout, count), ranges=ranges)
    for step in range(count):
        sources = halves_at(layout, geometry.offsets, count, step)
        targets = places(layout, CHUNK_TOKENS, CHUNK_TOKENS - count + step)
        for (source, size), (target, _) in zip(sources, targets, strict=True):
            assert bytes(memory[target:][:size]) == bytes(snapshot[source:][:size])


@pytest.mark.parametrize(("kind", "block_count"), [(StateKind.KV, 2), (StateKind.HIDDEN, 1)])
def test_equal_layers_are_one_block_whatever_lies_between(
    kind: StateKind, block_count: int
) -> None:
    stored, none = LayerState(kind, 64), LayerState(StateKind.NONE, 0)
    layout = layout_of([none, stored, stored, none, stored])
    blocks = row_blocks(layout, 3)
    assert [block.layer_count for block in blocks] == [3] * block_count
    assert {block.frame_stride for block in blocks} == {4096}


def test_keys_and_values_that_cannot_be_halved_are_refused() -> None:
    layout = layout_of([LayerState(StateKind.HIDDEN, 3), LayerState(StateKind.KV, 3)])
    with pytest.raises(LayoutError, match="layer 1 has 3 bytes a token"):
        row_blocks(layout, 1)


@pytest.mark.parametrize("token_bytes", [1, 3])
def test_a_chunk_that_has_no_halves_is_not_cut(token_bytes: int) -> None:
    """Bug: a half of half a byte was rounded down, and the rest was what the frame had held."""
    even = layout_of([LayerState(StateKind.HIDDEN, 3), LayerState(StateKind.KV, 2)])
    check_halves(even)
    odd = layout_of([*even.layers, LayerState(StateKind.KV, token_bytes)])
    with pytest.raises(LayoutError, match=f"layer 2 has {token_bytes} bytes a token"):
        check_halves(odd)
    with pytest.raises(LayoutError, match="layer 2"):
        head_moves(odd, source_tokens=CHUNK_TOKENS, target_tokens=1, token_count=1)


def test_a_chunk_of_a_codec_is_not_cut() -> None:
    """Its bytes are no rows: nobody but the client can tell where a token begins."""
    encoded = replace(layout_of([LayerState(StateKind.HIDDEN, 3)]), codec="zstd")
    with pytest.raises(LayoutError, match="codec 'zstd' cannot be cut"):
        check_halves(encoded)


@given(LAYOUTS, st.integers(1, CHUNK_TOKENS), st.data())
def test_a_short_chunk_gets_every_byte_of_its_slices_and_no_other(
    layout: StateLayout, short_tokens: int, data: st.DataObject
) -> None:
    """Else the daemon would sum and serve what lay in the frame before."""
    source_tokens = data.draw(st.integers(short_tokens, CHUNK_TOKENS))
    filled: list[int] = []
    for _, end, byte_count in head_moves(
        layout, source_tokens=source_tokens, target_tokens=short_tokens, token_count=short_tokens
    ):
        filled += range(end, end + byte_count)
    geometry = ChunkGeometry.of(layout, short_tokens)
    expected = [
        start + step
        for start, size in zip(geometry.slice_offsets, geometry.slice_bytes, strict=False)
        for step in range(size)
    ]
    assert sorted(filled) == expected


@given(LAYOUTS, st.integers(1, CHUNK_TOKENS), st.data())
def test_the_head_of_a_chunk_moves_to_another_length_and_back(
    layout: StateLayout, short_tokens: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, short_tokens))
    size = class_bytes(layout)
    memory = np.frombuffer(np.random.default_rng(2).bytes(size), np.uint8).copy()
    before = memory.copy()
    # Inside one frame, from the short chunk to the complete one, as a flushed tail is loaded.
    for start, end, byte_count in head_moves(
        layout, source_tokens=short_tokens, target_tokens=CHUNK_TOKENS, token_count=count
    ):
        memory[end : end + byte_count] = memory[start : start + byte_count].copy()
    for token in range(count):
        old, new = places(layout, short_tokens, token), places(layout, CHUNK_TOKENS, token)
        for (start, part), (end, _) in zip(old, new, strict=True):
            assert bytes(memory[end : end + part]) == bytes(before[start : start + part])
