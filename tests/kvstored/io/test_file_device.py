import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstored.io import file_device, transfer
from kvstored.io.device import Device, DeviceError
from kvstored.io.file_device import DeviceBusyError, FileDevice, reserve
from tests.kvstored.io.buffers import PAGE_BYTES, aligned
from tests.kvstored.io.device_conformance import CAPACITY_BYTES, DeviceConformance


def ignore(_: int) -> None:
    """A progress display that shows nothing."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody who has a device gives it up here."""
    monkeypatch.setattr(file_device, "LOCK_PATIENCE_S", 0.02)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "device"
    reserve(path, CAPACITY_BYTES, ignore)
    return path


@pytest.fixture
def file(path: Path) -> Iterator[FileDevice]:
    device = FileDevice.open(path)
    yield device
    device.close()


class TestFileDevice(DeviceConformance):
    @pytest.fixture
    def device(self, file: FileDevice) -> Device:
        return file


def test_has_the_name_of_its_path(file: FileDevice, path: Path) -> None:
    assert file.facts.name == str(path)


def test_bytes_outlive_the_device(path: Path) -> None:
    written = aligned(PAGE_BYTES, seed=1)
    device = FileDevice.open(str(path))
    device.writev([written], PAGE_BYTES)
    device.flush()
    device.close()
    assert path.read_bytes()[PAGE_BYTES : 2 * PAGE_BYTES] == written


def test_splits_more_buffers_than_one_call_takes(path: Path) -> None:
    count = transfer.IOV_MAX + 10
    reserve(path, count * PAGE_BYTES, ignore)
    device = FileDevice.open(path)
    written = aligned(count * PAGE_BYTES, seed=2)
    pages = range(0, count * PAGE_BYTES, PAGE_BYTES)
    device.writev([written[start : start + PAGE_BYTES] for start in pages], 0)
    read = aligned(count * PAGE_BYTES)
    device.readv([read[start : start + PAGE_BYTES] for start in pages], 0)
    device.close()
    assert read == written


def test_splits_more_bytes_than_one_call_takes(
    file: FileDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def counting(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        calls.append(len(buffers))
        return sum(buffer.nbytes for buffer in buffers)

    monkeypatch.setattr(transfer, "_CALL_BYTES_MAX", 3 * PAGE_BYTES)
    monkeypatch.setattr(os, "preadv", counting)
    page, large = aligned(PAGE_BYTES), aligned(4 * PAGE_BYTES)
    file.readv([page, page, large, page, page, page, page], 0)
    assert calls == [2, 1, 3, 1]


def test_capacity_can_be_less_than_the_file(path: Path) -> None:
    device = FileDevice.open(path, capacity_bytes=2 * PAGE_BYTES)
    with pytest.raises(DeviceError, match="lie outside"):
        device.readv([aligned(PAGE_BYTES)], 2 * PAGE_BYTES)
    device.close()


def test_capacity_cannot_be_more_than_the_file(path: Path) -> None:
    with pytest.raises(DeviceError, match=f"it has {CAPACITY_BYTES} bytes"):
        FileDevice.open(path, capacity_bytes=CAPACITY_BYTES + 1)
    FileDevice.open(path).close()


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="absent: open failed: No such file"):
        FileDevice.open(tmp_path / "absent")


@pytest.mark.parametrize("readonly", [False, True])
def test_a_device_in_use_is_refused(file: FileDevice, path: Path, readonly: bool) -> None:
    with pytest.raises(DeviceBusyError, match="stop the other daemon"):
        FileDevice.open(path, readonly=readonly)
    with pytest.raises(DeviceBusyError):
        reserve(path, 2 * CAPACITY_BYTES, ignore)
    assert path.stat().st_size == CAPACITY_BYTES


def test_readers_share_a_device_and_cannot_write(path: Path) -> None:
    first = FileDevice.open(path, readonly=True)
    second = FileDevice.open(path, readonly=True)
    second.readv([aligned(PAGE_BYTES)], 0)
    with pytest.raises(DeviceError, match="write failed: Bad file descriptor"):
        first.writev([aligned(PAGE_BYTES)], 0)
    with pytest.raises(DeviceBusyError):
        FileDevice.open(path)
    first.close()
    second.close()


def test_a_short_transfer_is_an_error(file: FileDevice, path: Path) -> None:
    os.truncate(path, PAGE_BYTES)
    with pytest.raises(DeviceError, match="read failed: 4096 of 8192 bytes at offset 0") as caught:
        file.readv([aligned(2 * PAGE_BYTES)], 0)
    assert not caught.value.sticky


def test_a_failed_transfer_is_an_error_of_that_call_only(
    file: FileDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", broken)
        with pytest.raises(DeviceError, match="write failed: Input/output error") as caught:
            file.writev([aligned(PAGE_BYTES)], 0)
    assert not caught.value.sticky
    file.writev([aligned(PAGE_BYTES)], 0)
    file.flush()


def test_a_failed_flush_is_never_retried(file: FileDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    flushes: list[int] = []

    def broken(descriptor: int) -> None:
        flushes.append(descriptor)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    with pytest.raises(DeviceError, match="flush failed: Input/output error") as caught:
        file.flush()
    assert caught.value.sticky
    calls = [
        file.flush,
        lambda: file.readv([aligned(PAGE_BYTES)], 0),
        lambda: file.writev([aligned(PAGE_BYTES)], 0),
    ]
    for call in calls:
        with pytest.raises(DeviceError, match="an earlier flush failed") as caught:
            call()
        assert caught.value.sticky
    assert len(flushes) == 1


def test_a_file_system_without_direct_io_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(DeviceError, match="does not support O_DIRECT; use ext4"):
            FileDevice.open(path)
    monkeypatch.setattr(file_device, "direct_alignment", lambda _: None)
    with pytest.raises(DeviceError, match="no O_DIRECT for it; use ext4"):
        FileDevice.open(path)


def test_a_device_with_larger_blocks_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_device, "direct_alignment", lambda _: 16_384)
    with pytest.raises(DeviceError, match="transfers of 16384 bytes, more than 4096"):
        FileDevice.open(path)


def test_reserve_allocates_every_block_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_device, "_RESERVE_STEP_BYTES", 3 * PAGE_BYTES)
    seen: list[int] = []
    path = tmp_path / "new"
    reserve(path, 8 * PAGE_BYTES, seen.append)
    assert seen == [3 * PAGE_BYTES, 6 * PAGE_BYTES, 8 * PAGE_BYTES]
    assert path.stat().st_size == 8 * PAGE_BYTES
    assert path.stat().st_blocks * 512 >= 8 * PAGE_BYTES
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("old_pages", [1, 20])
def test_reserve_changes_a_file_to_the_wanted_size(tmp_path: Path, old_pages: int) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"x" * old_pages * PAGE_BYTES)
    reserve(path, 4 * PAGE_BYTES, ignore)
    assert path.stat().st_size == 4 * PAGE_BYTES


def test_reserve_tells_of_missing_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DeviceError, match="reserve failed: 4096 bytes: No space left"):
        reserve(tmp_path / "new", PAGE_BYTES, ignore)


def test_reserve_takes_a_block_device_as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stat, "S_ISBLK", lambda _: True)
    seen: list[int] = []
    reserve(path, PAGE_BYTES, seen.append)
    assert seen == [PAGE_BYTES]
    assert path.stat().st_size == CAPACITY_BYTES
    with pytest.raises(DeviceError, match=f"it has {CAPACITY_BYTES} bytes"):
        reserve(path, 2 * CAPACITY_BYTES, ignore)


def watch_opens(monkeypatch: pytest.MonkeyPatch, error_number: int | None = None) -> list[int]:
    """Flags of what is opened, which all counts as block devices.

    With an error number the system has them: what is opened exclusively fails with it.
    """
    real = os.open
    seen: list[int] = []

    def noted(name: str, flags: int, *rest: int) -> int:
        seen.append(flags)
        if error_number is not None and flags & os.O_EXCL:
            raise OSError(error_number, os.strerror(error_number))
        return real(name, flags, *rest)

    monkeypatch.setattr(os, "open", noted)
    monkeypatch.setattr(stat, "S_ISBLK", lambda _: True)
    return seen


def test_a_block_device_that_the_system_uses_was_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a mounted file system or a part of md was formatted, because only kvstored locks."""
    watch_opens(monkeypatch, errno.EBUSY)
    with pytest.raises(DeviceBusyError, match=r"open failed: .* mounted, or part of md or LVM;"):
        FileDevice.open(path)
    with pytest.raises(DeviceBusyError, match="mounted"):
        reserve(path, PAGE_BYTES, ignore)
    FileDevice.open(path, readonly=True).close()


def test_only_what_is_written_is_taken_from_the_system(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watch_opens(monkeypatch)
    reserve(path, PAGE_BYTES, ignore)
    FileDevice.open(path).close()
    FileDevice.open(path, readonly=True).close()
    assert [bool(flags & os.O_EXCL) for flags in seen] == [True, True, False]
    # With both flags the device would have to be new.
    assert not any(flags & os.O_CREAT for flags in seen)


def test_what_else_is_wrong_with_a_block_device_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch_opens(monkeypatch, errno.EROFS)
    with pytest.raises(DeviceError, match="open failed: Read-only file system") as caught:
        FileDevice.open(path)
    assert not isinstance(caught.value, DeviceBusyError)
