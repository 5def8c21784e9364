"""Which copy of a superblock counts, and when none does.

Fails when ``read_superblock`` does not catch the error of one copy's read (seen: the set with
a bad page was refused: "attach that device again, or replace it"), and when it raises the
error of the first damaged copy where another could not be read (seen: "is no device of this
version", with the advice to format).
"""

from dataclasses import replace
from pathlib import Path

import pytest

from kvstored.format.superblock import Superblock
from kvstored.io.device import DeviceError
from kvstored.store.space.device_set import DeviceSetError, open_device_set
from kvstored.store.space.superblock_copies import read_superblock
from tests.kvstored.store.index_stores import media, memory_device_set
from tests.kvstored.store.space.test_device_set import (
    COPY_OFFSETS,
    format_quietly,
    stored_superblock,
)
from tests.support.devices import BadPlacesDevice, Wrapping


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
