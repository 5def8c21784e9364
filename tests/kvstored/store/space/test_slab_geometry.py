"""Places of extents: one by one and in arrays, the same answers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.format.geometry import Extent
from kvstored.store.space.slab_geometry import (
    SlabGeometry,
    place_of,
    positions,
    slab_number,
    slab_numbers,
    slab_position,
)

KIB = 1024
GEOMETRY = SlabGeometry(64 * KIB, (3, 0, 2), 1024 * KIB, 4 * KIB)


def place(extent: Extent) -> int | None:
    """Its place as the scalar functions have it."""
    try:
        slab_index, position = GEOMETRY.locate(extent)
    except (ValueError, IndexError, ZeroDivisionError):
        return None
    return place_of(GEOMETRY.first_slabs[extent.device_index] + slab_index, position)


def test_slabs_are_numbered_over_all_devices() -> None:
    assert GEOMETRY.slab_count == 5
    assert GEOMETRY.first_slabs == (0, 3, 3)
    extent = GEOMETRY.extent(2, 1, 4, 8 * KIB)
    assert extent == Extent(2, (1024 + 64 + 4 + 32) * KIB, 8 * KIB)
    found = place(extent)
    assert found is not None
    assert (slab_number(found), slab_position(found)) == (4, 4)


U64 = st.integers(0, 2**64 - 1)
ANY = st.builds(Extent, st.integers(0, 4), U64, U64)
NEARLY_POSSIBLE = st.builds(
    lambda device, slab, position, class_bytes, shift: Extent(
        device, GEOMETRY.extent(device, slab, position, class_bytes).offset + shift, class_bytes
    ),
    st.integers(0, 3),
    st.integers(-1, 3),
    st.integers(0, 7),
    st.sampled_from([8 * KIB, 12 * KIB, 60 * KIB, 64 * KIB]),
    st.sampled_from([0, 0, 0, 0, -4 * KIB, 4 * KIB, 512]),
)
EXTENTS = NEARLY_POSSIBLE | NEARLY_POSSIBLE | ANY


@given(extents=st.lists(EXTENTS, max_size=20))
def test_arrays_give_the_places_of_single_extents(extents: list[Extent]) -> None:
    byte_counts = np.array([extent.byte_count for extent in extents], np.uint64)
    found, is_possible = GEOMETRY.places(
        np.array([extent.device_index for extent in extents], np.uint16),
        np.array([extent.offset for extent in extents], np.uint64),
        byte_counts,
    )
    expected = [place(extent) for extent in extents]
    assert is_possible.tolist() == [place is not None for place in expected]
    assert found[is_possible].tolist() == [place for place in expected if place is not None]
    devices, offsets = GEOMETRY.extents(found[is_possible], byte_counts[is_possible])
    again = zip(devices.tolist(), offsets.tolist(), byte_counts[is_possible].tolist(), strict=True)
    possible = [extent for extent in extents if place(extent) is not None]
    assert [Extent(*parts) for parts in again] == possible


def test_parts_of_places() -> None:
    places = np.array([place_of(7, 9), place_of(2**31, 2**32 - 1)], np.uint64)
    assert slab_numbers(places).tolist() == [7, 2**31]
    assert positions(places).tolist() == [9, 2**32 - 1]


@pytest.mark.parametrize("device", [0, 2])
def test_every_extent_of_a_device_is_found(device: int) -> None:
    seen = set()
    for slab in range(GEOMETRY.slab_counts[device]):
        for position in range(GEOMETRY.extents_per_slab(12 * KIB)):
            extent = GEOMETRY.extent(device, slab, position, 12 * KIB)
            assert GEOMETRY.locate(extent) == (slab, position)
            assert GEOMETRY.slab_offset(slab) < extent.offset
            assert extent.end <= GEOMETRY.slab_offset(slab + 1)
            seen.add(extent.offset)
    assert len(seen) == 5 * GEOMETRY.slab_counts[device]
