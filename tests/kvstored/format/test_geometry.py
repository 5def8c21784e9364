from hypothesis import given
from hypothesis import strategies as st

from kvstored.format.extent import Extent
from kvstored.format.geometry import HEADER_BYTES, ChunkGeometry, class_bytes
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from tests.kvstored.format.strategies import layouts


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
