from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.format.geometry import (
    CLASS_STEPS,
    HEADER_BYTES,
    ChunkGeometry,
    Extent,
    LengthBounds,
    class_bytes,
    class_bytes_for,
)
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from tests.kvstored.format.strategies import layouts
from tests.support.untraced import UNTRACED


def test_slices_lie_in_layer_order_behind_the_header() -> None:
    layers = (
        LayerState(StateKind.KV, 100),
        LayerState(StateKind.NONE, 0),
        LayerState(StateKind.HIDDEN, 64),
    )
    layout = StateLayout(model="m", dtype="float32", layers=layers, chunk_tokens=64)
    geometry = ChunkGeometry.of(layout, 64)
    assert geometry.slice_bytes == (6400, 0, 4096)
    assert geometry.slice_offsets == (4096, 12_288, 12_288, 16_384)
    assert geometry.extent_bytes == 16_384
    assert geometry.layer_count == 3
    assert class_bytes(layout) == 16_384


@UNTRACED
@given(layouts, st.data())
def test_slices_are_aligned_disjoint_and_inside_the_class(
    layout: StateLayout, data: st.DataObject
) -> None:
    geometry = ChunkGeometry.of(layout, data.draw(st.integers(1, layout.chunk_tokens)))
    assert geometry.slice_offsets[0] == HEADER_BYTES
    for layer, byte_count in enumerate(geometry.slice_bytes):
        start, end = geometry.slice_offsets[layer : layer + 2]
        assert start % 4096 == 0
        assert 0 <= end - start - byte_count < 4096
    assert geometry.extent_bytes <= class_bytes(layout)
    assert ChunkGeometry.of_slices(geometry.slice_bytes) == geometry


def test_extent_end() -> None:
    assert Extent(0, 4096, 8192).end == 12_288


LAYERS = (
    LayerState(StateKind.KV, 100),
    LayerState(StateKind.NONE, 0),
    LayerState(StateKind.HIDDEN, 64),
)
ENCODED = StateLayout(model="m", dtype="float32", layers=LAYERS, chunk_tokens=64, codec="c")


@UNTRACED
@given(layouts, st.data())
def test_an_encoded_chunk_has_the_least_of_few_classes_that_it_fits(
    layout: StateLayout, data: st.DataObject
) -> None:
    layout = replace(layout, codec="c")
    most = [layout.slice_bytes(layer) for layer in range(layout.layer_count)]
    lengths = tuple(data.draw(st.integers(min(1, length), length)) for length in most)
    assert LengthBounds.of(layout).problem(lengths) is None
    geometry = ChunkGeometry.of_slices(lengths)
    size, largest = class_bytes_for(layout, geometry), class_bytes(layout)
    step_max = -(-largest // CLASS_STEPS) + 4095
    assert geometry.extent_bytes <= size <= largest
    assert size % 4096 == 0
    assert size - geometry.extent_bytes < step_max


def test_an_encoded_layout_has_a_bounded_number_of_classes() -> None:
    wide = replace(ENCODED, layers=(LayerState(StateKind.KV, 1000),))
    sizes = {
        class_bytes_for(wide, ChunkGeometry.of_slices((length,)))
        for length in range(1, wide.slice_bytes(0) + 1, 500)
    }
    assert sizes == {12288, 24576, 36864, 49152, 61440, class_bytes(wide)}
    assert len(sizes) <= CLASS_STEPS


@pytest.mark.parametrize(
    ("lengths", "problem"),
    [
        ((6400, 0, 1), None),
        ((1, 0, 4096), None),
        ((6400, 0), "2 lengths of slices for 3 layers"),
        ((), "0 lengths of slices for 3 layers"),
        ((6401, 0, 1), "layer 0 has 6401 bytes; this layout allows 1 to 6400"),
        ((0, 0, 1), "layer 0 has 0 bytes"),
        ((1, 1, 1), "layer 1 has 1 bytes; this layout allows 0 to 0"),
    ],
)
def test_lengths_that_no_chunk_of_a_layout_has(
    lengths: tuple[int, ...], problem: str | None
) -> None:
    found = LengthBounds.of(ENCODED).problem(lengths)
    assert found is None if problem is None else problem in str(found)


def test_slices_of_a_run_begin_at_pages_from_the_first_on() -> None:
    geometry = ChunkGeometry.of_slices((100, 5000, 0, 4096))
    assert geometry.starts_in_run(0, 4) == (0, 4096, 12288, 12288)
    assert geometry.starts_in_run(1, 2) == (0, 8192)
