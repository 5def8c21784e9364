"""Which copy of a superblock counts, and when none does.

Fails when ``read_superblock`` does not catch the error of one copy's read (seen: the set with
a bad page was refused: "attach that device again, or replace it"), and when it raises the
error of the first damaged copy where another could not be read (seen: "is no device of this
version", with the advice to format).
"""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvstored.format.errors import FormatError
from kvstored.format.slab_header import SlabHeader
from kvstored.format.superblock import DATA_OFFSET, Superblock
from kvstored.io.device import DeviceError
from kvstored.io.memory_device import MemoryDevice
from kvstored.io.monitored import MonitoredDevice
from kvstored.store.space import superblock_copies
from kvstored.store.space.device_set import DeviceSetError, open_device_set
from kvstored.store.space.superblock_copies import (
    SEARCH_ERRORS_MAX,
    find_superblock,
    read_superblock,
    write_superblock,
)
from tests.kvstored.store.index_stores import media, memory_device_set, write_slab_header
from tests.kvstored.store.space.test_device_set import (
    COPY_OFFSETS,
    DEVICE_BYTES,
    format_quietly,
    overwrite,
    stored_superblock,
)
from tests.support.devices import BadPlacesDevice, OnceWrongDevice, Wrapping
from tests.support.stores import MIB


def flawed(*bad_copies: int) -> tuple[BadPlacesDevice, Superblock]:
    """A device some copies of which cannot be read, and its superblock."""
    device_set = memory_device_set()
    superblock = device_set.superblocks[0]
    offsets = [superblock.copy_offsets[copy] for copy in bad_copies]
    return BadPlacesDevice(device_set.devices[0], offsets), superblock


@pytest.mark.parametrize("copy", [0, 1])
def test_the_other_copy_stands_in_for_one_that_cannot_be_read(
    copy: int, caplog: pytest.LogCaptureFixture
) -> None:
    device, superblock = flawed(copy)
    assert read_superblock(device) == superblock
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "memory-0: read failed" in record.message
    assert f"at byte {superblock.copy_offsets[copy]}," in record.message
    assert "replace the device" in record.message


def test_two_sound_copies_are_nothing_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    device, superblock = flawed()
    assert read_superblock(device) == superblock
    assert not caplog.records


def test_a_device_without_a_readable_copy_cannot_be_read() -> None:
    device, _ = flawed(0, 1)
    with pytest.raises(DeviceError, match="memory-0: read failed"):
        read_superblock(device)


@pytest.mark.parametrize("unread", [0, 1])
def test_a_copy_that_cannot_be_read_may_be_sound(unread: int) -> None:
    """Not "no device of kvstored": then the advice would be to format it."""
    device_set = memory_device_set()
    offsets = device_set.superblocks[0].copy_offsets
    media(device_set, 0)[offsets[1 - unread] + 20] ^= 1
    with pytest.raises(DeviceError, match="read failed"):
        read_superblock(BadPlacesDevice(device_set.devices[0], [offsets[unread]]))


def test_the_newer_of_two_copies_counts() -> None:
    device_set = memory_device_set()
    superblock = device_set.superblocks[0]
    newer = replace(superblock, epoch=7)
    media(device_set, 0)[superblock.copy_offsets[1] :][:4096] = memoryview(newer.encode())
    assert read_superblock(device_set.devices[0]) == newer


@pytest.mark.parametrize("offset", COPY_OFFSETS)
def test_a_set_opens_with_a_bad_page_and_writes_it_anew(device_folder: Path, offset: int) -> None:
    paths = [device_folder / f"device-{number}" for number in range(2)]
    format_quietly(paths)
    device_set = open_device_set(paths, wrap=lambda device: BadPlacesDevice(device, [offset]))
    assert device_set.advance_epoch() == 1
    device_set.close()
    assert {stored_superblock(path, offset).epoch for path in paths} == {1}


def test_a_set_with_a_device_that_cannot_be_read_is_refused(device_folder: Path) -> None:
    paths = [device_folder / f"device-{number}" for number in range(2)]
    format_quietly(paths)
    devices = Wrapping(lambda device: BadPlacesDevice(device, COPY_OFFSETS))
    with pytest.raises(DeviceSetError, match=r"device-0: read failed.*attach that device again"):
        open_device_set(paths, wrap=devices)


MORE_BYTES = (4096, 5 * MIB + 3 * 4096)
"""By so much the device is larger that another one was copied to."""


def copied(more_bytes: int, *, is_used: bool = True) -> tuple[MemoryDevice, Superblock]:
    """A device that a smaller one was copied to, of which the first page is lost."""
    device_set = memory_device_set()
    if is_used:
        write_slab_header(device_set, device=0, slab=0)
    content = media(device_set, 0)
    device = MemoryDevice("larger", len(content) + more_bytes)
    device.media[4096 : len(content)] = content[4096:]
    return device, device_set.superblocks[0]


@pytest.mark.parametrize("is_readable", [False, True])
@pytest.mark.parametrize("more_bytes", MORE_BYTES)
def test_a_copy_on_a_larger_device_was_lost_with_its_first_page(
    more_bytes: int, is_readable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Bug: the second copy was looked for at the end of the larger device only."""
    larger, superblock = copied(more_bytes)
    bad_places: list[int] = [] if is_readable else [0]
    assert find_superblock(BadPlacesDevice(larger, bad_places)) == superblock
    assert f"copy at byte {superblock.copy_offsets[1]} stands in for the first" in caplog.text


def test_a_set_on_larger_devices_opens_without_its_first_pages(device_folder: Path) -> None:
    paths = [device_folder / f"device-{number}" for number in range(2)]
    set_id = format_quietly(paths)
    for path in paths:
        superblock = stored_superblock(path)
        header = SlabHeader(device_id=superblock.device_id, slab_index=0, class_bytes=8192, epoch=0)
        overwrite(path, DATA_OFFSET, header.encode())
        overwrite(path, 0, bytes(4096))
        os.truncate(path, 2 * DEVICE_BYTES)
    device_set = open_device_set(paths)
    assert (device_set.set_id, device_set.advance_epoch()) == (set_id, 1)
    device_set.close()
    assert {stored_superblock(path).epoch for path in paths} == {1}


def test_steps_that_cannot_be_read_are_passed_over() -> None:
    device, superblock = copied(MORE_BYTES[1])
    end = device.facts.capacity_bytes
    assert find_superblock(BadPlacesDevice(device, [0, end - 1, end - 2 * MIB])) == superblock


def test_a_search_in_what_cannot_be_read_at_all_is_given_up() -> None:
    device, _ = copied(20 * MIB)
    counted = MonitoredDevice(BadPlacesDevice(device, range(0, device.facts.capacity_bytes, 4096)))
    with pytest.raises(DeviceError, match="read failed"):
        find_superblock(counted)
    # The first page twice, the last, and then the search.
    assert counted.counters().errors == 3 + SEARCH_ERRORS_MAX


def test_a_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    device, superblock = copied(5 * MIB)
    monkeypatch.setattr(superblock_copies, "SEARCH_BYTES_MAX", 5 * MIB)
    with pytest.raises(FormatError, match="no superblock"):
        find_superblock(device)
    monkeypatch.setattr(superblock_copies, "SEARCH_BYTES_MAX", 5 * MIB + 4096)
    assert find_superblock(device) == superblock


def test_only_a_copy_in_its_own_place_counts() -> None:
    """Chunks may hold the superblocks of others, whole or not."""
    device, superblock = copied(5 * MIB)
    page = np.frombuffer(superblock.encode(), np.uint8)
    second = superblock.copy_offsets[1]
    device.media[second + 4096 :][: len(page)] = page
    device.media[second + MIB : second + MIB + 8] = page[:8]
    device.media[second + MIB + 4096 + 1 :][: len(page)] = page
    assert find_superblock(device) == superblock
    device.media[second] ^= 1
    with pytest.raises(FormatError, match="no superblock"):
        find_superblock(device)


@pytest.mark.parametrize("is_used", [False, True], ids=["blank", "another version"])
def test_nothing_is_searched_where_no_set_can_have_been(is_used: bool) -> None:
    """A device of hundreds of GB that was never formatted is refused at once."""
    device, superblock = copied(64 * MIB, is_used=is_used)
    device.media[superblock.copy_offsets[1] :] = 0
    if is_used:
        device.media[-4096:-4088] = np.frombuffer(superblock.encode()[:8], np.uint8)
    counted = MonitoredDevice(device)
    with pytest.raises(FormatError, match="no superblock"):
        find_superblock(counted)
    assert counted.counters().read_bytes <= 8 * 4096


def reused(stale_epoch: int = 50) -> tuple[MemoryDevice, Superblock]:
    """A larger drive of an earlier set that another one was copied to whole, and what counts."""
    device_set = memory_device_set()
    content, superblock = media(device_set, 0), device_set.superblocks[0]
    larger = MemoryDevice("larger", len(content) + MORE_BYTES[1])
    stale = replace(
        superblock,
        set_id=b"o" * 16,
        device_id=b"d" * 16,
        capacity_bytes=larger.facts.capacity_bytes,
        epoch=stale_epoch,
    )
    write_superblock(larger, stale)
    larger.media[: len(content)] = content
    return larger, superblock


def test_an_older_superblock_at_the_end_of_a_reused_drive_won_by_its_epoch() -> None:
    """Bug: the set that was copied to the drive was refused, or overwritten at the next start."""
    larger, superblock = reused()
    assert find_superblock(larger) == superblock


def test_a_set_on_a_reused_drive_opens_and_goes_on(device_folder: Path) -> None:
    path, spare = device_folder / "device", device_folder / "spare"
    set_id = format_quietly([path])
    format_quietly([spare], device_bytes=2 * DEVICE_BYTES)
    for epoch in range(1, 4):
        other = open_device_set([spare])
        assert other.advance_epoch() == epoch
        other.close()
    overwrite(spare, 0, path.read_bytes())
    device_set = open_device_set([spare])
    assert (device_set.set_id, device_set.advance_epoch()) == (set_id, 1)
    device_set.close()
    assert {stored_superblock(spare, offset).epoch for offset in COPY_OFFSETS} == {1}


def test_a_first_copy_that_was_read_wrong_once_lets_no_older_one_in() -> None:
    larger, superblock = reused()
    device = OnceWrongDevice(larger)
    device.is_wrong = True
    assert find_superblock(device) == superblock


def test_the_newer_second_copy_of_a_device_on_a_larger_one_counts() -> None:
    """A start that was cut short, on a drive that lost the first write: both are of one device."""
    larger, superblock = reused()
    newer = replace(superblock, epoch=7)
    page = np.frombuffer(newer.encode(), np.uint8)
    larger.media[superblock.copy_offsets[1] :][: len(page)] = page
    assert find_superblock(larger) == newer


def test_a_format_that_was_cut_short_left_the_older_set_in_charge(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Bug: of two copies of different sets the one with the larger epoch counted."""
    device_set = memory_device_set()
    superblock = device_set.superblocks[0]
    formatted = replace(superblock, set_id=b"n" * 16, device_id=b"d" * 16, epoch=0)
    media(device_set, 0)[:4096] = np.frombuffer(formatted.encode(), np.uint8)
    assert read_superblock(device_set.devices[0]) == formatted
    assert f"copy at byte {superblock.copy_offsets[1]} is that of another device" in caplog.text


def test_a_copy_of_a_device_of_another_size_is_none_of_this_one() -> None:
    """At the end of a part of a drive there may be the end of the whole drive."""
    device, superblock = copied(MORE_BYTES[1])
    other = replace(superblock, capacity_bytes=device.facts.capacity_bytes + MIB, epoch=50)
    device.media[-4096:] = np.frombuffer(other.encode(), np.uint8)
    with pytest.raises(FormatError, match="no superblock"):
        read_superblock(device)
    assert find_superblock(device) == superblock
