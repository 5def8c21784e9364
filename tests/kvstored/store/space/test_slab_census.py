"""What slabs hold; ``test_chunk_table`` holds the counts against a model."""

import numpy as np
import pytest

from kvstored.store.space.slab_census import SlabCensus
from kvstored.store.space.slab_geometry import SlabGeometry, place_of

KIB = 1024
GEOMETRY = SlabGeometry(64 * KIB, (2, 2), 1024 * KIB, 4 * KIB)


@pytest.fixture
def census() -> SlabCensus:
    """Of device 0: a chunk in the first slab, two in the second, of another class."""
    census = SlabCensus(GEOMETRY)
    census.enter(0, 8 * KIB)
    census.enter(1, 12 * KIB)
    census.enter(1, 12 * KIB)
    return census


def test_other_slabs_classes_are_told() -> None:
    census = SlabCensus(GEOMETRY)
    places = np.array([place_of(0, 1), place_of(1, 0)], np.uint64)
    first = np.array([8 * KIB, 12 * KIB], np.uint64)
    assert census.claim_classes(places, first).tolist() == [False, False]
    assert census.claim_classes(places, first[::-1]).tolist() == [True, True]
    assert [census.class_bytes_of(slab) for slab in range(3)] == [8 * KIB, 12 * KIB, 0]
    census.forget_class(1)
    assert not census.claim_classes(places[1:], first[:1]).any()


def test_slabs_are_numbered_over_all_devices(census: SlabCensus) -> None:
    assert [census.place(slab) for slab in range(4)] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert census.number(1, 1) == 3


def test_a_class_has_the_chunks_of_its_slabs(census: SlabCensus) -> None:
    assert [census.count_of_class(size * KIB) for size in (8, 12, 16)] == [1, 2, 0]
    census.leave(1)
    assert (census.chunk_count(1), census.count_of_class(12 * KIB)) == (1, 1)
    census.recount(np.array([3, 4, 0, 0]))
    assert (census.chunk_count(1), census.count_of_class(12 * KIB)) == (4, 4)


def test_slabs_with_the_most_room_for_other_classes_are_stranded(census: SlabCensus) -> None:
    # 6 x 8 KiB and 3 x 12 KiB are free: 84 KiB of 256.
    assert census.stranded(4 * KIB, 0.3) == [(0, 0), (0, 1)]
    assert census.stranded(4 * KIB, 0.4) == []
    assert census.stranded(8 * KIB, 0.1) == [(0, 1)]
    assert census.stranded(4 * KIB, 0.1, without={0}) == []
    assert census.stranded(4 * KIB, 0.3, without={1}) == [(0, 0), (0, 1)]
