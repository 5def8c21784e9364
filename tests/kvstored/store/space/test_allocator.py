"""The allocator against a plain model of which bytes are in use."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvstored.format.geometry import Extent
from kvstored.store.space.allocator import Allocator
from tests.support.untraced import UNTRACED

KIB = 1024
SLAB_BYTES = 64 * KIB
DATA_OFFSET = 1024 * KIB
HEADER_BYTES = 4 * KIB
CLASSES = [8 * KIB, 12 * KIB, 20 * KIB]


def make_allocator(slab_counts: list[int] | None = None) -> Allocator:
    return Allocator(
        slab_bytes=SLAB_BYTES,
        slab_counts=slab_counts or [3, 3],
        data_offset=DATA_OFFSET,
        slab_header_bytes=HEADER_BYTES,
    )


class AllocatorMachine(RuleBasedStateMachine):
    """Random allocations and frees; occupying the used extents gives an equal allocator."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = make_allocator()
        self.used: list[Extent] = []

    @rule(class_bytes=st.sampled_from(CLASSES), device=st.integers(0, 1))
    def allocate(self, class_bytes: int, device: int) -> None:
        allocation = self.allocator.allocate(class_bytes, device)
        if allocation is None:
            assert self.free_slabs() == 0
            return
        assert allocation.extent.byte_count == class_bytes
        slab = self.allocator.geometry.slab_index(allocation.extent)
        sharing = [
            other
            for other in self.used
            if other.device_index == allocation.extent.device_index
            and self.allocator.geometry.slab_index(other) == slab
        ]
        assert all(other.byte_count == class_bytes for other in sharing)
        assert (allocation.opened_slab == slab) == (not sharing)
        self.used.append(allocation.extent)

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        if self.used:
            extent = self.used.pop(data.draw(st.integers(0, len(self.used) - 1)))
            self.allocator.free(extent)
            with pytest.raises(ValueError, match="not in use"):
                self.allocator.free(extent)

    @rule()
    def restart(self) -> None:
        self.allocator = make_allocator()
        for extent in self.used:
            self.allocator.occupy(extent)

    @invariant()
    def extents_do_not_overlap(self) -> None:
        ordered = sorted(self.used, key=lambda extent: (extent.device_index, extent.offset))
        for left, right in pairwise(ordered):
            assert left.device_index != right.device_index or left.end <= right.offset

    @invariant()
    def used_bytes_are_counted(self) -> None:
        for device in (0, 1):
            expected = sum(e.byte_count for e in self.used if e.device_index == device)
            assert self.allocator.used_bytes(device) == expected

    def free_slabs(self) -> int:
        in_use = {(e.device_index, self.allocator.geometry.slab_index(e)) for e in self.used}
        return 6 - len(in_use)


AllocatorMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60)
TestAllocatorMachine = UNTRACED(AllocatorMachine.TestCase)


def test_full_device_falls_over_to_the_next() -> None:
    allocator = make_allocator([1, 1])
    extents = [allocator.allocate(20 * KIB, 0) for _ in range(6)]
    assert [a.extent.device_index for a in extents if a] == [0, 0, 0, 1, 1, 1]
    assert allocator.allocate(20 * KIB, 0) is None


def test_an_extent_that_is_not_in_use_is_not_freed() -> None:
    allocator = make_allocator()
    allocation = allocator.allocate(8 * KIB, 0)
    assert allocation is not None
    allocator.free(allocation.extent)
    with pytest.raises(ValueError, match="not in use"):
        allocator.free(allocation.extent)


def test_excluded_devices_are_not_used() -> None:
    allocation = make_allocator().allocate(8 * KIB, 0, excluded={0})
    assert allocation is not None
    assert allocation.extent.device_index == 1
    assert make_allocator().allocate(8 * KIB, 0, excluded={0, 1}) is None


def test_class_larger_than_a_slab_is_never_allocated() -> None:
    allocator = make_allocator()
    assert allocator.geometry.class_bytes_max == SLAB_BYTES - HEADER_BYTES
    assert allocator.allocate(SLAB_BYTES, 0) is None


def test_emptied_slab_serves_another_class() -> None:
    allocator = make_allocator([1])
    first = allocator.allocate(8 * KIB, 0)
    assert first is not None
    assert allocator.allocate(12 * KIB, 0) is None
    allocator.free(first.extent)
    second = allocator.allocate(12 * KIB, 0)
    assert second is not None
    assert second.opened_slab == 0


def test_reopened_slab_is_found_once_per_class() -> None:
    """A slab that comes and goes leaves no trace that would be handed out twice."""
    allocator = make_allocator([2])
    for _ in range(10):
        kept = allocator.allocate(8 * KIB, 0)
        assert kept is not None
        allocator.free(kept.extent)
    taken = [allocator.allocate(8 * KIB, 0) for _ in range(14)]
    offsets = {allocation.extent.offset for allocation in taken if allocation}
    assert len(offsets) == 14
    assert allocator.allocate(8 * KIB, 0) is None


@pytest.mark.parametrize(
    ("extent", "message"),
    [
        (Extent(0, DATA_OFFSET + 5 * SLAB_BYTES, 8 * KIB), "outside the device"),
        (Extent(0, 0, 8 * KIB), "outside the device"),
        (Extent(0, DATA_OFFSET + HEADER_BYTES + 4 * KIB, 8 * KIB), "extent boundary"),
        (Extent(0, DATA_OFFSET, 8 * KIB), "extent boundary"),
        (Extent(0, DATA_OFFSET + HEADER_BYTES + 56 * KIB, 8 * KIB), "extent boundary"),
    ],
)
def test_occupy_refuses_what_cannot_be_an_extent(extent: Extent, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_allocator().occupy(extent)


@pytest.mark.parametrize("positions", [[0], [6, 2, 3], list(range(7))])
def test_a_whole_slab_is_occupied_as_its_extents_are(positions: list[int]) -> None:
    whole, single = make_allocator(), make_allocator()
    whole.occupy_slab(1, 2, 8 * KIB, np.array(positions))
    for position in positions:
        single.occupy(whole.geometry.extent(1, 2, position, 8 * KIB))
    assert whole.used_count(1, 2) == single.used_count(1, 2) == len(positions)
    assert whole.used_bytes(1) == single.used_bytes(1)
    taken = [[one.allocate(8 * KIB, 1) for _ in range(21)] for one in (whole, single)]
    assert taken[0] == taken[1]
    for position in positions:
        whole.free(whole.geometry.extent(1, 2, position, 8 * KIB))


def test_occupy_refuses_overlap() -> None:
    allocator = make_allocator()
    extent = Extent(1, DATA_OFFSET + HEADER_BYTES, 8 * KIB)
    allocator.occupy(extent)
    with pytest.raises(ValueError, match="overlaps"):
        allocator.occupy(extent)
    with pytest.raises(ValueError, match="overlaps"):
        allocator.occupy(Extent(1, DATA_OFFSET + HEADER_BYTES, 12 * KIB))
    assert allocator.capacity_bytes(1) == 3 * SLAB_BYTES
    assert allocator.geometry.slab_offset(2) == DATA_OFFSET + 2 * SLAB_BYTES


def test_nothing_is_handed_out_of_a_closed_slab() -> None:
    allocator = Allocator(slab_bytes=4096, slab_counts=[2], data_offset=0, slab_header_bytes=0)
    first = allocator.allocate(1024, 0)
    assert first is not None
    allocator.close_slab(0, 0)
    beside = allocator.allocate(1024, 0)
    assert beside is not None
    assert (beside.opened_slab, beside.extent.offset) == (1, 4096)
    allocator.free(first.extent)
    assert allocator.allocate(2048, 0) is None
    allocator.reopen_slab(0, 0)
    taken = allocator.allocate(2048, 0)
    assert taken is not None
    assert taken.opened_slab == 0
    allocator.close_slab(0, 0)
    assert allocator.allocate(2048, 0) is None
    allocator.reopen_slab(0, 0)
    again = allocator.allocate(2048, 0)
    assert again is not None
    assert (again.opened_slab, again.extent.offset) == (None, 2048)
