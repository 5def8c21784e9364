import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kvstored.format.superblock import DATA_OFFSET, SUPERBLOCK_BYTES, Superblock
from kvstored.io import file_device
from kvstored.io.device import Device, DeviceError
from kvstored.io.faulty import CallFault, DeviceCall, FaultPlan, FaultyDevice
from kvstored.io.monitored import MonitoredDevice
from kvstored.store.space import device_set as device_set_module
from kvstored.store.space.device_set import (
    DeviceSet,
    DeviceSetError,
    format_device_set,
    open_device_set,
)

SLAB_BYTES = 256 * 1024
DEVICE_BYTES = DATA_OFFSET + 4 * SLAB_BYTES + SUPERBLOCK_BYTES
COPY_OFFSETS = (0, DEVICE_BYTES - SUPERBLOCK_BYTES)


def ignore(_done_bytes: int, _all_bytes: int) -> None:
    """A progress display that shows nothing."""


def format_quietly(
    paths: list[Path],
    *,
    device_bytes: int = DEVICE_BYTES,
    slab_bytes: int = SLAB_BYTES,
    force: bool = False,
) -> bytes:
    return format_device_set(
        paths, device_bytes=device_bytes, slab_bytes=slab_bytes, force=force, progress=ignore
    )


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def stored_superblock(path: Path, offset: int = 0) -> Superblock:
    return Superblock.decode(path.read_bytes()[offset : offset + SUPERBLOCK_BYTES])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who has a device gives it up here."""
    monkeypatch.setattr(file_device, "LOCK_PATIENCE_S", 0.02)


@pytest.fixture
def paths(device_folder: Path) -> list[Path]:
    return [device_folder / f"device-{index}" for index in range(3)]


@pytest.fixture
def set_id(paths: list[Path]) -> bytes:
    return format_quietly(paths)


@pytest.fixture
def opened(paths: list[Path], set_id: bytes) -> Iterator[DeviceSet]:
    device_set = open_device_set(paths)
    yield device_set
    device_set.close()


def test_a_formatted_set_opens(paths: list[Path], set_id: bytes, opened: DeviceSet) -> None:
    assert opened.set_id == set_id
    assert opened.epoch == 0
    assert opened.slab_bytes == SLAB_BYTES
    assert [device.facts.name for device in opened.devices] == [str(path) for path in paths]
    assert [device.facts.capacity_bytes for device in opened.devices] == [DEVICE_BYTES] * 3
    assert [superblock.device_index for superblock in opened.superblocks] == [0, 1, 2]
    assert [superblock.slab_count for superblock in opened.superblocks] == [4, 4, 4]
    assert len(set(opened.device_ids)) == 3


def test_progress_counts_the_bytes_of_all_devices(paths: list[Path]) -> None:
    seen: list[tuple[int, int]] = []
    format_device_set(
        paths,
        device_bytes=DEVICE_BYTES,
        slab_bytes=SLAB_BYTES,
        force=False,
        progress=lambda done_bytes, all_bytes: seen.append((done_bytes, all_bytes)),
    )
    assert seen == [(count * DEVICE_BYTES, 3 * DEVICE_BYTES) for count in (1, 2, 3)]


def test_both_copies_are_written(paths: list[Path], set_id: bytes) -> None:
    first, last = (stored_superblock(paths[1], offset) for offset in COPY_OFFSETS)
    assert first == last


@pytest.mark.parametrize("offset", COPY_OFFSETS)
def test_one_damaged_copy_does_not_matter_and_is_renewed(
    paths: list[Path], set_id: bytes, offset: int
) -> None:
    overwrite(paths[0], offset + 20, b"damage")
    device_set = open_device_set(paths)
    device_set.advance_epoch()
    device_set.close()
    assert stored_superblock(paths[0], offset).epoch == 1


def test_epochs_advance_durably(paths: list[Path], set_id: bytes) -> None:
    for epoch in (1, 2, 3):
        device_set = open_device_set(paths)
        assert device_set.advance_epoch() == epoch
        assert device_set.epoch == epoch
        assert {superblock.epoch for superblock in device_set.superblocks} == {epoch}
        device_set.close()
    assert [stored_superblock(path, COPY_OFFSETS[1]).epoch for path in paths] == [3, 3, 3]


def test_the_highest_epoch_of_all_copies_counts(paths: list[Path], set_id: bytes) -> None:
    newer = replace(stored_superblock(paths[2]), epoch=5)
    overwrite(paths[2], COPY_OFFSETS[1], newer.encode())
    device_set = open_device_set(paths)
    assert device_set.epoch == 5
    assert device_set.advance_epoch() == 6
    device_set.close()


def test_an_epoch_that_cannot_be_written_is_not_entered(paths: list[Path], set_id: bytes) -> None:
    fault = CallFault(call=DeviceCall.FLUSH, nth=1, sticky=True)
    plan = FaultPlan(faults=(fault,))
    device_set = open_device_set(paths, wrap=lambda device: FaultyDevice(device, plan))
    with pytest.raises(DeviceError, match="flush failed"):
        device_set.advance_epoch()
    assert device_set.epoch == 0
    device_set.close()


def test_devices_are_wrapped(paths: list[Path], set_id: bytes) -> None:
    device_set = open_device_set(paths, wrap=MonitoredDevice)
    assert all(
        isinstance(device, MonitoredDevice) and device.counters().read_requests == 2
        for device in device_set.devices
    )
    device_set.close()


def test_readers_share_a_set_and_cannot_change_it(paths: list[Path], set_id: bytes) -> None:
    first = open_device_set(paths, readonly=True)
    second = open_device_set(paths, readonly=True)
    with pytest.raises(DeviceError):
        second.advance_epoch()
    first.close()
    second.close()


@pytest.mark.parametrize("readonly", [False, True])
def test_a_second_daemon_is_refused(paths: list[Path], opened: DeviceSet, readonly: bool) -> None:
    with pytest.raises(
        DeviceSetError, match=r"cannot open the device set: .*device-0.*other daemon"
    ):
        open_device_set(paths, readonly=readonly)
    with pytest.raises(DeviceSetError, match=r"cannot format: .*device-0.*other daemon"):
        format_quietly(paths, force=True)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_who_may_not_use_a_device_heard_that_it_should_be_replaced(
    paths: list[Path], set_id: bytes, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """*Bug:* a drive that the service may not use was taken for one that has gone.

    The sentence advised to replace it and to format the set, which loses everything.
    """

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DeviceSetError, match=r"name it in DeviceAllow= or ReadWritePaths=") as said:
        open_device_set(paths)
    assert "replace" not in str(said.value)


@pytest.mark.parametrize("is_hidden", [True, False])
def test_a_missing_device_may_only_be_hidden_from_the_service(
    paths: list[Path], set_id: bytes, is_hidden: bool
) -> None:
    name = Path("/dev/no-such-drive") if is_hidden else paths[0].with_name("no-such-file")
    with pytest.raises(DeviceSetError, match="attach that device again") as said:
        open_device_set([name, paths[1]])
    assert ("PrivateDevices=no" in str(said.value)) == is_hidden


def test_a_refused_set_stays_unlocked(paths: list[Path], set_id: bytes) -> None:
    with pytest.raises(DeviceSetError):
        open_device_set([*paths[:2], paths[2].with_name("absent")])

    def refuse(device: Device) -> Device:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        open_device_set(paths, wrap=refuse)
    open_device_set(paths).close()


def test_a_device_of_another_set_is_refused(paths: list[Path], set_id: bytes) -> None:
    stranger = paths[0].with_name("stranger")
    format_quietly([stranger])
    with pytest.raises(DeviceSetError, match="stranger belongs to device set"):
        open_device_set([*paths[:2], stranger])


def test_the_order_matters(paths: list[Path], set_id: bytes) -> None:
    with pytest.raises(DeviceSetError, match="device-1 is device 1 of its set but is named as"):
        open_device_set([paths[1], paths[0], paths[2]])


def test_a_part_of_the_set_is_refused(paths: list[Path], set_id: bytes) -> None:
    with pytest.raises(DeviceSetError, match="a set of 3 devices, but 2 are named"):
        open_device_set(paths[:2])


def test_an_unformatted_device_is_refused(device_folder: Path) -> None:
    path = device_folder / "blank"
    path.write_bytes(bytes(DEVICE_BYTES))
    with pytest.raises(DeviceSetError, match=r"blank is no device .*\(no superblock\); format it"):
        open_device_set([path])


@pytest.mark.parametrize("byte_count", [0, 100])
def test_a_tiny_file_is_refused(device_folder: Path, byte_count: int) -> None:
    path = device_folder / "tiny"
    path.write_bytes(bytes(byte_count))
    with pytest.raises(DeviceSetError, match="tiny is no device"):
        open_device_set([path])


def test_another_version_is_refused(paths: list[Path], set_id: bytes) -> None:
    for offset in COPY_OFFSETS:
        overwrite(paths[0], offset + 8, struct.pack("<H", 2))
    with pytest.raises(DeviceSetError, match="superblock version 2, expected 1"):
        open_device_set(paths)


def test_a_shrunk_device_is_refused(paths: list[Path], set_id: bytes) -> None:
    with paths[0].open("r+b") as file:
        file.truncate(DEVICE_BYTES - SLAB_BYTES)
    with pytest.raises(DeviceSetError, match=f"formatted with {DEVICE_BYTES} bytes but has"):
        open_device_set(paths)


def test_names_must_be_distinct_and_not_too_many(paths: list[Path]) -> None:
    with pytest.raises(DeviceSetError, match="has 1 to 1024 devices, not 0"):
        format_quietly([])
    with pytest.raises(DeviceSetError, match="named twice"):
        format_quietly([paths[0], paths[0].parent / ".." / paths[0].parent.name / paths[0].name])
    assert not paths[0].exists()


@pytest.mark.parametrize("force", [False, True])
def test_a_used_device_is_formatted_by_force_only(
    paths: list[Path], set_id: bytes, force: bool
) -> None:
    if force:
        assert format_quietly(paths, device_bytes=DEVICE_BYTES - SLAB_BYTES, force=True) != set_id
    else:
        with pytest.raises(DeviceSetError, match="device-1 holds a device of a set or other data"):
            format_quietly([paths[0].with_name("new"), paths[1]])
        assert not paths[0].with_name("new").exists()
    device_set = open_device_set(paths)
    assert (device_set.set_id == set_id) == (not force)
    device_set.close()


@pytest.mark.parametrize("content", [b"a letter", bytes(4096 * 3 + 1), bytes(8192) + b"x" * 4096])
def test_other_data_is_not_overwritten(device_folder: Path, content: bytes) -> None:
    path = device_folder / "letter"
    path.write_bytes(content)
    with pytest.raises(DeviceSetError, match="other data; format it with force"):
        format_quietly([path])
    assert path.read_bytes() == content


@pytest.mark.parametrize("byte_count", [0, 4096, 2 * DEVICE_BYTES // 4096 * 4096])
def test_blank_files_are_formatted(device_folder: Path, byte_count: int) -> None:
    path = device_folder / "blank"
    path.write_bytes(bytes(byte_count))
    format_quietly([path])
    device_set = open_device_set([path])
    assert device_set.devices[0].facts.capacity_bytes == DEVICE_BYTES
    device_set.close()


@pytest.mark.parametrize(
    ("device_bytes", "slab_bytes", "message"),
    [
        (DEVICE_BYTES + 1, SLAB_BYTES, "multiples of 4096"),
        (DEVICE_BYTES, SLAB_BYTES + 512, "multiples of 4096"),
        (DEVICE_BYTES, 0, "multiples of 4096"),
        (DATA_OFFSET + SLAB_BYTES, SLAB_BYTES, f"at least {DATA_OFFSET + SLAB_BYTES + 4096}"),
    ],
)
def test_impossible_sizes_are_refused(
    paths: list[Path], device_bytes: int, slab_bytes: int, message: str
) -> None:
    with pytest.raises(DeviceSetError, match=message):
        format_quietly(paths, device_bytes=device_bytes, slab_bytes=slab_bytes)
    assert not paths[0].exists()


def test_the_smallest_device_has_one_slab(device_folder: Path) -> None:
    path = device_folder / "small"
    format_quietly([path], device_bytes=DATA_OFFSET + SLAB_BYTES + SUPERBLOCK_BYTES)
    assert stored_superblock(path).slab_count == 1


def test_files_of_a_failed_format_are_removed(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: Device, __: Superblock) -> None:
        raise KeyboardInterrupt

    paths[0].touch()
    monkeypatch.setattr(device_set_module, "write_superblock", interrupt)
    with pytest.raises(KeyboardInterrupt):
        format_quietly(paths)
    assert [path.exists() for path in paths] == [True, False, False]


SIGNATURES = {
    "btrfs": 64 * 1024,
    "md 1.2": 4096,
    "md 1.0": DEVICE_BYTES - 8 * 1024,
    "md 0.90": DEVICE_BYTES - 64 * 1024,
}
"""Where others have theirs, neither in the first page nor in the last."""


@pytest.mark.parametrize("kind", SIGNATURES)
def test_a_device_of_btrfs_or_md_was_formatted_without_force(
    device_folder: Path, kind: str
) -> None:
    """Bug: only the first and the last page were looked at."""
    path = device_folder / "drive"
    path.write_bytes(bytes(DEVICE_BYTES))
    overwrite(path, SIGNATURES[kind], b"signature")
    with pytest.raises(DeviceSetError, match="other data; format it with force"):
        format_quietly([path])
    format_quietly([path], force=True)
