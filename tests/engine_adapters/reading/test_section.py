import pytest

from engine_adapters.reading.byte_format import ByteFormat
from engine_adapters.reading.section import (
    bands_of,
    first_stored_layer,
    sections_from,
    sections_of,
    sections_of_layers,
    whole_section,
)
from kvstored_client import LayerState, StateKind, StateLayout

KINDS = {
    "h": LayerState(StateKind.HIDDEN, 1024),
    "k": LayerState(StateKind.KV, 2048),
    "K": LayerState(StateKind.KV, 1024),
    "-": LayerState(StateKind.NONE, 0),
}


def layout_of(layers: str, chunk_tokens: int = 10) -> StateLayout:
    return StateLayout(
        model="m",
        dtype="float32",
        layers=tuple(KINDS[layer] for layer in layers),
        chunk_tokens=chunk_tokens,
    )


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ("kkk", [(0, 3)]),
        ("--hhh", [(2, 3)]),
        ("hhk", [(0, 2), (2, 1)]),
        ("-hKh", [(1, 1), (2, 1), (3, 1)]),
    ],
)
def test_neighbours_of_one_kind_are_one_section(
    layers: str, expected: list[tuple[int, int]]
) -> None:
    sections = sections_of(layout_of(layers))
    assert [(part.first_layer, part.layer_count) for part in sections] == expected
    assert first_stored_layer(layout_of(layers)) == expected[0][0]
    assert [part.stop_layer for part in sections] == [first + count for first, count in expected]


@pytest.mark.parametrize("layers", ["h-", "hh-k"])
def test_only_the_first_layers_can_be_computed_again(layers: str) -> None:
    with pytest.raises(ValueError, match=r"layer \d stores nothing but layer 0 before it does"):
        sections_of(layout_of(layers))


def test_slices_take_whole_pages_and_no_more() -> None:
    hidden, loaded = sections_of(layout_of("-hhk"))
    assert hidden.slice_stride == 12 * 1024
    assert loaded.slice_stride == 20 * 1024
    assert hidden.region_bytes(7) == 2 * 7 * 12 * 1024


def test_a_whole_layout_takes_one_read() -> None:
    layout = layout_of("hhk")
    section = whole_section(layout)
    assert (section.first_layer, section.stop_layer) == (0, 3)
    assert section.slice_stride == 20 * 1024
    assert section.region_bytes(7) == ByteFormat(layout).held_bytes(7) == 3 * 7 * 20 * 1024
    assert ByteFormat(layout).slice_shape(0) == (10 * 1024,)


@pytest.mark.parametrize(
    ("first_layer", "expected"),
    [
        (0, [(0, 2), (2, 2)]),
        (1, [(1, 1), (2, 2)]),
        (2, [(2, 2)]),
        (3, [(3, 1)]),
        (9, [(3, 1)]),
    ],
)
def test_sections_from_a_layer_on_keep_their_stride_and_one_layer_at_least(
    first_layer: int, expected: list[tuple[int, int]]
) -> None:
    sections = sections_of(layout_of("hhkk"))
    found = sections_from(sections, first_layer)
    assert [(part.first_layer, part.layer_count) for part in found] == expected
    assert found[-1].slice_stride == sections[-1].slice_stride


def test_layers_may_cut_sections() -> None:
    sections = sections_of(layout_of("-hhkk"))
    parts = sections_of_layers(sections, range(2, 4))
    assert [(part.first_layer, part.layer_count) for part in parts] == [(2, 1), (3, 1)]
    assert [part.slice_stride for part in parts] == [part.slice_stride for part in sections]
    assert sections_of_layers(sections, range(1)) == ()


@pytest.mark.parametrize(
    ("chunk_count", "pages", "bands", "band_chunks"),
    [
        (4, 1000, [range(1, 6)], 4),
        (4, 40, [range(1, 3), range(3, 5), range(5, 6)], 4),
        (4, 20, [range(n, n + 1) for n in range(1, 6)], 4),
        (4, 10, [range(n, n + 1) for n in range(1, 6)], 2),
        (4, 1, [range(n, n + 1) for n in range(1, 6)], 1),
    ],
)
def test_a_band_has_all_chunks_of_as_many_layers_as_fit(
    chunk_count: int, pages: int, bands: list[range], band_chunks: int
) -> None:
    """Each slice takes 5 pages, as much as the largest."""
    sections = sections_of(layout_of("-hhkkk"))
    found = bands_of(sections, chunk_count=chunk_count, byte_count=pages * 4096)
    assert found == (tuple(bands), band_chunks)
