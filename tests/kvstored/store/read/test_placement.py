import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.store.read.placement import Fragments, Placement, PlacementError
from kvstored.store.space.allocator import device_for


def test_strides() -> None:
    placement = Placement(base=4096, layer_stride=100, chunk_stride=1000)
    fragments = placement.fragments(chunk=2, first_layer=3, slice_bytes=(64, 0, 32), chunk_count=4)
    assert [each.pairs() for each in fragments] == [[(6396, 64)], [], [(6596, 32)]]


def test_block_offsets_cut_a_slice_into_equal_fragments() -> None:
    placement = Placement(base=10, layer_stride=1000, block_offsets=(0, 700, 300, 400))
    fragments = placement.fragments(chunk=1, first_layer=1, slice_bytes=(64, 0, 8), chunk_count=2)
    assert [each.pairs() for each in fragments] == [
        [(1310, 32), (1410, 32)],
        [],
        [(3310, 4), (3410, 4)],
    ]


def test_one_block_for_each_chunk_leaves_slices_whole() -> None:
    placement = Placement(base=10, layer_stride=1000, block_offsets=(0, 700))
    fragments = placement.fragments(chunk=1, first_layer=1, slice_bytes=(64, 8), chunk_count=2)
    assert fragments == (Fragments(1710, 64), Fragments(2710, 8))


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
        of_slices = placement.fragments(
            chunk=chunk, first_layer=0, slice_bytes=sizes, chunk_count=chunk_count
        )
        for size, fragments in zip(sizes, of_slices, strict=True):
            pairs = fragments.pairs()
            assert sum(part for _, part in pairs) == size
            assert all(offset >= 0 and offset + part <= arena_bytes for offset, part in pairs)


def test_block_offsets_that_fit_exactly_are_accepted() -> None:
    placement = Placement(base=0, layer_stride=512, block_offsets=(0, 128, 256, 384))
    placement.check(arena_bytes=1024, chunk_count=2, slice_bytes=[256, 256])
    with pytest.raises(PlacementError, match="ends at byte 1024 of an arena of 1023 bytes"):
        placement.check(arena_bytes=1023, chunk_count=2, slice_bytes=[256, 256])
    with pytest.raises(PlacementError, match="2 fragments of a slice have less than 64 bytes each"):
        placement.check(arena_bytes=1024, chunk_count=2, slice_bytes=[126, 126])


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        (Placement(base=0, layer_stride=8, block_offsets=(0, 8, 16)), "evenly"),
        (Placement(base=0, layer_stride=8, block_offsets=(0,) * 6), "equal fragments"),
        (Placement(base=1000, layer_stride=8, chunk_stride=8), "ends at byte"),
    ],
)
def test_check_names_the_fault(placement: Placement, message: str) -> None:
    with pytest.raises(PlacementError, match=message):
        placement.check(arena_bytes=1000, chunk_count=2, slice_bytes=[8, 8])


PAGE = 4096


@pytest.mark.parametrize(
    ("placement", "aligned"),
    [
        (Placement(base=PAGE, layer_stride=PAGE, chunk_stride=2 * PAGE), True),
        (Placement(base=512, layer_stride=PAGE, chunk_stride=PAGE), False),
        (Placement(base=0, layer_stride=512, chunk_stride=PAGE), False),
        (Placement(base=0, layer_stride=PAGE, chunk_stride=512), False),
        (Placement(base=0, layer_stride=PAGE, block_offsets=(0, PAGE)), True),
        (Placement(base=0, layer_stride=PAGE, block_offsets=(0, 512)), False),
    ],
)
def test_slices_that_begin_on_pages(placement: Placement, aligned: bool) -> None:
    assert placement.is_aligned(chunk_count=2, layer_count=2) is aligned


@pytest.mark.parametrize(
    ("placement", "byte_count", "aligned"),
    [
        (Placement(base=512, layer_stride=PAGE - 512, chunk_stride=PAGE), PAGE, True),
        (Placement(base=512, layer_stride=PAGE - 512, chunk_stride=PAGE), 512, False),
        (Placement(base=512, layer_stride=PAGE - 512, chunk_stride=512), PAGE, False),
        (Placement(base=512, layer_stride=512, chunk_stride=PAGE), PAGE, False),
        (Placement(base=0, layer_stride=PAGE, block_offsets=(0, PAGE, PAGE, 0)), 2 * PAGE, True),
        (Placement(base=0, layer_stride=PAGE, block_offsets=(0, PAGE, PAGE, 0)), PAGE, False),
        (Placement(base=0, layer_stride=PAGE, block_offsets=(0, 0, 0, 512)), 2 * PAGE, False),
    ],
)
def test_slices_that_are_made_of_pages(
    placement: Placement, byte_count: int, aligned: bool
) -> None:
    found = placement.is_slice_aligned(layer=1, byte_count=byte_count, chunk_count=2)
    assert found is aligned


def test_strides_that_nothing_uses_need_not_be_aligned() -> None:
    placement = Placement(base=PAGE, layer_stride=1, chunk_stride=1)
    assert placement.is_aligned(chunk_count=1, layer_count=1)
    blocks = Placement(base=0, layer_stride=1, chunk_stride=1, block_offsets=(PAGE, 0))
    assert blocks.is_aligned(chunk_count=2, layer_count=1)


def test_consecutive_chunks_go_to_consecutive_devices() -> None:
    devices = [device_for(stripe=7 + i, device_count=4) for i in range(5)]
    assert devices == [3, 0, 1, 2, 3]
