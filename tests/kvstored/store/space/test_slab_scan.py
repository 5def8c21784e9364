"""What a slab says of itself, also where parts of it cannot be read.

Fails when ``_header_pages`` lets the error of a read out (seen: ``DeviceError`` for a
bad header, a bad payload and a hiccup), and when ``scan_slab`` reads the header of the slab
only once (seen: ``DeviceError`` for a hiccup).
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.io.device import DeviceError
from kvstored.io.faults.calls import FailingCalls, Fuse
from kvstored.io.memory import AlignedMemory
from kvstored.io.monitored import MonitoredDevice
from kvstored.store.space.device_set import DeviceSet
from kvstored.store.space.scanned_slab import ScannedSlab
from kvstored.store.space.second_looks import LOOKS_MIN, READS_PER_LOOK, SecondLooks
from kvstored.store.space.slab_scan import (
    SCAN_BYTES,
    SlabPlace,
    header_reads,
    read_slab_header,
    scan_slab,
    slab_places,
)
from tests.kvstored.store.index_stores import (
    CLASS_BYTES,
    SLAB_BYTES,
    SLAB_COUNT,
    chunk_id,
    extent_at,
    media,
    memory_device_set,
    write_chunk,
    write_slab_header,
)
from tests.support.devices import BadPlacesDevice, OnceWrongDevice

WIDE_BYTES = 100 * 1024
"""A class whose headers are read one by one; a slab here has two extents of it."""


@pytest.fixture
def scratch():
    memory = AlignedMemory(SCAN_BYTES)
    yield memory.view
    memory.close()


def scan(place: SlabPlace, scratch: memoryview) -> ScannedSlab:
    """Of a device on which no look was in vain before."""
    return scan_slab(place, scratch, SecondLooks())


def first_place(device_set) -> SlabPlace:
    return slab_places(device_set)[0]


@given(st.integers(2, 100), st.integers(4, 4000))
def test_reads_cover_every_extent_once_and_fit_the_memory(pages: int, slab_pages: int) -> None:
    class_bytes, byte_count = pages * 4096, slab_pages * 4096
    reads = list(header_reads(offset=7 * 4096, byte_count=byte_count, class_bytes=class_bytes))
    offsets = [start + n * class_bytes for start, count in reads for n in range(count)]
    first = 8 * 4096
    assert offsets == [first + n * class_bytes for n in range((byte_count - 4096) // class_bytes)]
    assert all((count - 1) * class_bytes + 4096 <= SCAN_BYTES for _, count in reads)


def test_places_alternate_between_devices() -> None:
    places = slab_places(memory_device_set(2))
    assert [(p.slab_index, p.device_index) for p in places[:3]] == [(0, 0), (0, 1), (1, 0)]
    assert len(places) == 2 * SLAB_COUNT


def test_unused_slab_has_nothing(scratch) -> None:
    device_set = memory_device_set()
    assert read_slab_header(first_place(device_set), scratch) is None
    assert scan(first_place(device_set), scratch) == ScannedSlab()


@pytest.mark.parametrize("class_bytes", [4096, 8193, SLAB_BYTES, 0])
def test_slab_header_with_an_impossible_class_is_none(scratch, class_bytes: int) -> None:
    device_set = memory_device_set()
    write_slab_header(device_set, device=0, slab=0, class_bytes=class_bytes)
    assert read_slab_header(first_place(device_set), scratch) is None


def test_slab_header_of_another_slab_is_none(scratch) -> None:
    device_set = memory_device_set()
    write_slab_header(device_set, device=0, slab=1)
    content = media(device_set, 0)
    places = slab_places(device_set)
    content[places[0].offset :][:4096] = content[places[2].offset :][:4096]
    assert read_slab_header(places[2], scratch) is not None
    assert read_slab_header(places[0], scratch) is None


def test_scan_finds_sound_headers_at_their_own_place(scratch) -> None:
    device_set = memory_device_set()
    write_slab_header(device_set, device=0, slab=0)
    kept = write_chunk(device_set, chunk_id(1), extent_at(0), stamp=1)
    damaged = write_chunk(device_set, chunk_id(2), extent_at(1), stamp=2)
    moved = write_chunk(device_set, chunk_id(3), extent_at(2), stamp=3)
    content = media(device_set, 0)
    content[damaged.extent.offset + 100] ^= 1
    content[extent_at(3).offset :][:4096] = content[moved.extent.offset :][:4096]
    found = scan(first_place(device_set), scratch)
    assert found == ScannedSlab(chunks=((chunk_id(1), kept), (chunk_id(3), moved)))


def test_headers_older_than_the_slab_are_left_over(scratch) -> None:
    device_set = memory_device_set()
    write_slab_header(device_set, device=0, slab=0, epoch=2)
    write_chunk(device_set, chunk_id(1), extent_at(0), stamp=1)
    assert scan(first_place(device_set), scratch) == ScannedSlab()


def test_headers_of_another_class_are_left_over(scratch) -> None:
    device_set = memory_device_set()
    write_slab_header(device_set, device=0, slab=0, class_bytes=2 * CLASS_BYTES)
    write_chunk(device_set, chunk_id(1), extent_at(0), stamp=1)
    assert scan(first_place(device_set), scratch) == ScannedSlab()


def test_header_whose_slices_do_not_fit_its_extent_is_no_chunk(scratch) -> None:
    device_set = memory_device_set()
    write_slab_header(device_set, device=0, slab=0)
    write_chunk(device_set, chunk_id(1), extent_at(0), stamp=1, slice_bytes=(CLASS_BYTES,))
    assert scan(first_place(device_set), scratch) == ScannedSlab()


def test_large_classes_are_read_header_by_header(scratch) -> None:
    device_set = memory_device_set()
    write_slab_header(device_set, device=0, slab=0, class_bytes=WIDE_BYTES)
    extent = extent_at(1, size=WIDE_BYTES)
    record = write_chunk(device_set, chunk_id(1), extent, stamp=1, slice_bytes=(90_000,))
    found = scan(first_place(device_set), scratch)
    assert found == ScannedSlab(chunks=((chunk_id(1), record),))
    assert np.any(media(device_set, 0)[extent.offset :][:4096])


@pytest.mark.parametrize("class_bytes", [CLASS_BYTES, WIDE_BYTES], ids=["dense", "wide"])
def test_an_unreadable_header_costs_its_own_chunk_only(scratch, class_bytes: int) -> None:
    device_set = memory_device_set()
    write_slab_header(device_set, device=0, slab=0, class_bytes=class_bytes)
    written = [
        (chunk, write_chunk(device_set, chunk, extent_at(position, size=class_bytes), stamp=1))
        for position, chunk in enumerate(map(chunk_id, range(2)))
    ]
    place = first_place(device_set)
    bad = BadPlacesDevice(place.device, [written[0][1].extent.offset + 100])
    found = scan(replace(place, device=bad), scratch)
    assert found == ScannedSlab(chunks=(written[1],), unread_count=1)


@pytest.mark.parametrize("class_bytes", [CLASS_BYTES, WIDE_BYTES], ids=["dense", "wide"])
def test_a_payload_that_cannot_be_read_costs_nothing(scratch, class_bytes: int) -> None:
    device_set = memory_device_set()
    write_slab_header(device_set, device=0, slab=0, class_bytes=class_bytes)
    written = (
        chunk_id(1),
        write_chunk(device_set, chunk_id(1), extent_at(0, size=class_bytes), stamp=1),
    )
    place = first_place(device_set)
    bad = BadPlacesDevice(place.device, [written[1].extent.offset + 4096])
    assert scan(replace(place, device=bad), scratch) == ScannedSlab(chunks=(written,))


@pytest.mark.parametrize("class_bytes", [CLASS_BYTES, WIDE_BYTES], ids=["dense", "wide"])
@pytest.mark.parametrize("reads_before", [0, 1])
def test_a_hiccup_costs_nothing(scratch, class_bytes: int, reads_before: int) -> None:
    device_set = memory_device_set()
    write_slab_header(device_set, device=0, slab=0, class_bytes=class_bytes)
    written = (
        chunk_id(1),
        write_chunk(device_set, chunk_id(1), extent_at(0, size=class_bytes), stamp=1),
    )
    place = first_place(device_set)
    device = FailingCalls(place.device, Fuse(reads_before + 1))
    assert scan(replace(place, device=device), scratch) == ScannedSlab(chunks=(written,))


def test_a_slab_without_a_readable_header_of_its_own_cannot_be_scanned(scratch) -> None:
    device_set = memory_device_set()
    place = first_place(device_set)
    bad = BadPlacesDevice(place.device, [place.offset])
    with pytest.raises(DeviceError):
        scan(replace(place, device=bad), scratch)


def test_a_slab_header_that_was_read_wrong_once_cost_all_of_its_chunks(
    scratch, caplog: pytest.LogCaptureFixture
) -> None:
    """Bug: the slab counted as one that was never used, and a rebuild left its chunks out."""
    device_set = memory_device_set()
    write_slab_header(device_set, device=0, slab=0)
    written = chunk_id(1), write_chunk(device_set, chunk_id(1), extent_at(0), stamp=1)
    place = first_place(device_set)
    device = OnceWrongDevice(place.device)
    device.is_wrong = True
    for start, count in header_reads(
        offset=place.offset, byte_count=place.byte_count, class_bytes=CLASS_BYTES
    ):
        device.seen.add((start, (count - 1) * CLASS_BYTES + 4096))
    assert scan(replace(place, device=device), scratch) == ScannedSlab(chunks=(written,))
    assert "the header of slab 0 of memory-0 was read wrong once" in caplog.text


def place_with_once_wrong_headers(device_set: DeviceSet) -> SlabPlace:
    """A slab whose own header is read right, and of the extents each first read is wrong."""
    place = first_place(device_set)
    device = OnceWrongDevice(place.device)
    device.seen.add((place.offset, 4096))
    device.is_wrong = True
    return replace(place, device=device)


@pytest.mark.parametrize("class_bytes", [CLASS_BYTES, WIDE_BYTES], ids=["dense", "wide"])
def test_an_extent_header_that_was_read_wrong_once_left_its_chunk_out(
    scratch, caplog: pytest.LogCaptureFixture, class_bytes: int
) -> None:
    """Bug: nothing was read again, and a rebuild left the chunk out for good."""
    device_set = memory_device_set()
    write_slab_header(device_set, device=0, slab=0, class_bytes=class_bytes)
    written = tuple(
        (chunk, write_chunk(device_set, chunk, extent_at(position, size=class_bytes), stamp=1))
        for position, chunk in enumerate(map(chunk_id, range(2)))
    )
    assert scan(place_with_once_wrong_headers(device_set), scratch) == ScannedSlab(chunks=written)
    assert "1 extent headers in slab 0 of memory-0 were read wrong once" in caplog.text


def test_what_the_second_look_cannot_read_is_as_the_first_read_it(scratch) -> None:
    device_set = memory_device_set()
    write_slab_header(device_set, device=0, slab=0)
    written = chunk_id(1), write_chunk(device_set, chunk_id(1), extent_at(0), stamp=1)
    place = first_place(device_set)
    # The slab's header, all extents, and these once more, because some hold nothing.
    device = FailingCalls(place.device, Fuse(3))
    assert scan(replace(place, device=device), scratch) == ScannedSlab(chunks=(written,))
    assert device.fuse is not None
    assert device.fuse.call_count == 3


def test_a_slab_whose_headers_are_all_sound_is_read_once(scratch) -> None:
    device_set = memory_device_set()
    write_slab_header(device_set, device=0, slab=0, class_bytes=WIDE_BYTES, epoch=2)
    for position in range(2):
        # Left over from an earlier use, which is as good a reason not to look again.
        write_chunk(device_set, chunk_id(1), extent_at(position, size=WIDE_BYTES), stamp=1)
    place = first_place(device_set)
    counted = MonitoredDevice(place.device)
    assert scan(replace(place, device=counted), scratch) == ScannedSlab()
    assert counted.counters().read_requests == 3


def test_a_device_that_is_really_damaged_is_not_read_twice(scratch) -> None:
    device_set = memory_device_set()
    write_slab_header(device_set, device=0, slab=0, class_bytes=WIDE_BYTES)
    place = first_place(device_set)
    counted = MonitoredDevice(place.device)
    looks, scan_count = SecondLooks(), 200
    for _ in range(scan_count):
        assert scan_slab(replace(place, device=counted), scratch, looks) == ScannedSlab()
    read_count = 3 * scan_count
    vain_count = LOOKS_MIN + 2 * scan_count // READS_PER_LOOK
    assert counted.counters().read_requests == read_count + vain_count


def test_looks_that_find_something_are_not_counted() -> None:
    looks = SecondLooks()
    for _ in range(2 * LOOKS_MIN):
        assert looks.take()
        looks.give_back()
    assert [looks.take() for _ in range(LOOKS_MIN + 1)] == [True] * LOOKS_MIN + [False]
    for _ in range(READS_PER_LOOK):
        looks.count_read()
    assert [looks.take() for _ in range(2)] == [True, False]
