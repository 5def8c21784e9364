import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.store.placement import Placement, PlacementError
from kvstored.store.striping import device_for


def test_strides() -> None:
    placement = Placement(base=4096, layer_stride=100, chunk_stride=1000)
    assert placement.pieces(chunk=2, layer=3, slice_bytes=64, chunk_count=4) == ((6396, 64),)
    assert placement.pieces(chunk=2, layer=3, slice_bytes=0, chunk_count=4) == ()


def test_block_offsets_cut_a_slice_into_equal_pieces() -> None:
    placement = Placement(base=10, layer_stride=1000, block_offsets=(0, 700, 300, 400))
    assert placement.pieces(chunk=1, layer=1, slice_bytes=64, chunk_count=2) == (
        (1310, 32),
        (1410, 32),
    )


@given(
    base=st.integers(0, 50),
    layer_stride=st.integers(0, 50),
    chunk_stride=st.integers(0, 50),
    blocks=st.lists(st.integers(0, 100), max_size=6),
    chunk_count=st.integers(1, 3),
    sizes=st.lists(st.integers(0, 12).map(lambda n: n * 2), min_size=1, max_size=3),
    arena_bytes=st.integers(1, 300),
)
def test_what_check_accepts_lies_inside_the_arena(
    base: int,
    layer_stride: int,
    chunk_stride: int,
    blocks: list[int],
    chunk_count: int,
    sizes: list[int],
    arena_bytes: int,
) -> None:
    placement = Placement(
        base=base,
        layer_stride=layer_stride,
        chunk_stride=chunk_stride,
        block_offsets=tuple(blocks),
    )
    try:
        placement.check(arena_bytes=arena_bytes, chunk_count=chunk_count, slice_bytes=sizes)
    except PlacementError:
        return
    for chunk in range(chunk_count):
        for layer, size in enumerate(sizes):
            pieces = placement.pieces(
                chunk=chunk, layer=layer, slice_bytes=size, chunk_count=chunk_count
            )
            assert sum(part for _, part in pieces) == size
            assert all(offset >= 0 and offset + part <= arena_bytes for offset, part in pieces)


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        (Placement(base=0, layer_stride=8, block_offsets=(0, 8, 16)), "evenly"),
        (Placement(base=0, layer_stride=8, block_offsets=(0,) * 6), "equal pieces"),
        (Placement(base=1000, layer_stride=8, chunk_stride=8), "ends at byte"),
    ],
)
def test_check_names_the_fault(placement: Placement, message: str) -> None:
    with pytest.raises(PlacementError, match=message):
        placement.check(arena_bytes=1000, chunk_count=2, slice_bytes=[8, 8])


def test_consecutive_chunks_go_to_consecutive_devices() -> None:
    devices = [device_for(stripe=7 + i, device_count=4) for i in range(5)]
    assert devices == [3, 0, 1, 2, 3]
