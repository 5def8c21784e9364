import os
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from kvstored.doctor.facts import PlaceKind
from kvstored.doctor.places import look_at_device, look_at_folder


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    """A kernel's folder in which the drive of ``tmp_path`` has a partition that holds it."""
    number = tmp_path.stat().st_dev
    drive = tmp_path / "sys" / "devices" / "nvme9n1"
    partition = drive / "nvme9n1p1"
    (drive / "queue").mkdir(parents=True)
    (drive / "queue" / "write_cache").write_text("write through\n")
    (drive / "queue" / "rotational").write_text("1\n")
    partition.mkdir()
    (partition / "partition").write_text("1\n")
    numbers = tmp_path / "sys" / "dev" / "block"
    numbers.mkdir(parents=True)
    (numbers / f"{os.major(number)}:{os.minor(number)}").symlink_to(partition)
    return tmp_path / "sys"


def test_a_file_and_the_drive_below_its_partition(tmp_path: Path, sys: Path) -> None:
    path = tmp_path / "device"
    path.write_bytes(bytes(8192))
    place = look_at_device(path, sys=sys)
    assert (place.kind, place.size_bytes, place.is_usable) == (PlaceKind.FILE, 8192, True)
    assert (place.drive, place.write_cache, place.is_rotational) == (
        "nvme9n1",
        "write through",
        True,
    )
    assert place.alignment_bytes is None or place.alignment_bytes >= 1


def test_a_device_that_is_to_be_made(tmp_path: Path, sys: Path) -> None:
    place = look_at_device(tmp_path / "device", sys=sys)
    assert (place.kind, place.drive, place.is_usable) == (PlaceKind.ABSENT, "nvme9n1", True)
    assert place.free_bytes is not None
    assert place.free_bytes > 0


def test_a_device_in_a_folder_that_is_missing(tmp_path: Path) -> None:
    place = look_at_device(tmp_path / "no" / "device")
    assert (place.kind, place.free_bytes) == (PlaceKind.ABSENT, None)


def test_a_drive_that_the_kernel_does_not_show(tmp_path: Path) -> None:
    (tmp_path / "device").write_bytes(b"")
    place = look_at_device(tmp_path / "device", sys=tmp_path)
    assert (place.drive, place.write_cache, place.is_rotational) == ("", "", False)


def test_a_folder_is_no_device(tmp_path: Path) -> None:
    assert look_at_device(tmp_path).kind is PlaceKind.OTHER


def test_a_file_that_may_not_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "device"
    path.write_bytes(bytes(4096))
    monkeypatch.setattr(os, "access", lambda *_: False)
    place = look_at_device(path)
    assert (place.is_usable, place.size_bytes) == (False, 4096)


def test_a_file_system_without_direct_transfers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "device"
    path.write_bytes(bytes(4096))

    def refuse(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "open", refuse)
    place = look_at_device(path)
    assert (place.alignment_bytes, place.size_bytes) == (None, 4096)


def test_folder(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"a / ext4 rw 0 0\nb {tmp_path} tmpfs rw 0 0\nc /elsewhere\\040x xfs rw 0 0\n"
    )
    place = look_at_folder(tmp_path, mounts=mounts)
    assert (place.path, place.is_writable, place.is_in_memory) == (tmp_path, True, True)
    assert place.free_bytes > 0
    assert not look_at_folder(Path("/"), mounts=mounts).is_in_memory


def test_the_daemon_makes_folders_below_the_nearest_one(tmp_path: Path) -> None:
    below, nearest = look_at_folder(tmp_path / "a" / "b"), look_at_folder(tmp_path)
    # Others write on this file system meanwhile.
    assert replace(below, free_bytes=nearest.free_bytes) == nearest
    assert below.free_bytes > 0
    assert look_at_folder(Path("/") / "no" / "such").path == Path("/")


@pytest.mark.skipif(os.getuid() != 0, reason="root becomes somebody else")
def test_a_user_who_may_not_look_got_a_traceback() -> None:
    before = os.geteuid()
    with tempfile.TemporaryDirectory() as closed:
        os.seteuid(65534)
        try:
            device = look_at_device(Path(closed, "below", "device"))
            folder = look_at_folder(Path(closed, "below", "index"))
        finally:
            os.seteuid(before)
    assert not device.is_usable
    assert not folder.is_writable


def test_a_system_that_lists_no_file_systems(tmp_path: Path) -> None:
    place = look_at_folder(tmp_path, mounts=tmp_path / "no")
    assert place.is_writable
    assert not place.is_in_memory


def test_looking_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "device"
    path.write_bytes(bytes(4096))
    before = path.stat()
    look_at_device(path)
    after = path.stat()
    assert (before.st_mtime_ns, stat.S_IMODE(before.st_mode), before.st_size) == (
        after.st_mtime_ns,
        stat.S_IMODE(after.st_mode),
        after.st_size,
    )
