"""Digests that are remembered, and the many ways in which that must not go wrong."""

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine_adapters import file_digests as module
from engine_adapters import hashed_file
from engine_adapters.file_digests import default_memory, file_digests
from engine_adapters.hashed_file import ENTRIES_MAX, SETTLED_S, HashedFile, decoded, encoded

LATER_NS = (SETTLED_S + 5) * 1_000_000_000


class Bench:
    """A weights file, what is remembered of it, and a clock that is ahead of the file's times."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.file = folder / "model.safetensors"
        self.file.write_bytes(b"weights")
        self.memory = folder / "cache" / "digests.json"
        self.ahead_ns = LATER_NS
        self.hash_count = 0
        hash_file = module._hashed

        def counted(*arguments: object) -> HashedFile:
            self.hash_count += 1
            return hash_file(*arguments)  # type: ignore[arg-type]  # whatever it is given

        patch.setattr(module, "_hashed", counted)

    def digest(self) -> bytes:
        (digest,) = file_digests(
            [self.file], memory=self.memory, clock_ns=lambda: time.time_ns() + self.ahead_ns
        )
        return digest

    def is_right(self) -> bool:
        return self.digest() == hashlib.sha256(self.file.read_bytes()).digest()


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_all_weights_are_hashed_at_every_start(bench: Bench) -> None:
    """Bug: with 70 billion of them that took over two minutes."""
    assert all(bench.is_right() for _ in range(3))
    assert bench.hash_count == 1


def test_file_that_is_younger_than_its_hash_is_not_trusted(bench: Bench) -> None:
    """It may change within the same tick of the file system's clock."""
    bench.ahead_ns = 0
    assert bench.is_right()
    assert not bench.memory.exists()
    assert bench.is_right()
    assert bench.hash_count == 2


def test_file_whose_times_are_set_back_is_hashed_anew(bench: Bench) -> None:
    assert bench.is_right()
    before = bench.file.stat()
    bench.file.write_bytes(b"Weights")
    os.utime(bench.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert bench.is_right()
    assert bench.hash_count == 2


def test_file_that_takes_the_place_of_another_is_hashed_anew(bench: Bench) -> None:
    assert bench.is_right()
    other = bench.file.with_name("other")
    other.write_bytes(b"WEIGHTS")
    os.utime(other, ns=(0, bench.file.stat().st_mtime_ns))
    other.replace(bench.file)
    assert bench.is_right()
    assert bench.hash_count == 2


def test_file_that_grows_is_hashed_anew(bench: Bench) -> None:
    assert bench.is_right()
    with bench.file.open("ab") as file:
        file.write(b"more")
    assert bench.is_right()
    assert bench.hash_count == 2


def _cut(memory: Path) -> None:
    memory.write_bytes(memory.read_bytes()[:-9])


def _flip_digest(memory: Path) -> None:
    document = json.loads(memory.read_bytes())
    (fields,) = document["files"].values()
    fields["digest"] = "00" * 32
    memory.write_text(json.dumps(document))


def _renumber(memory: Path) -> None:
    memory.write_text(json.dumps({**json.loads(memory.read_bytes()), "version": 2}))


def _add_field(memory: Path) -> None:
    files = {"x": {"surprise": 1}}
    document = {"version": 1, "checksum": hashed_file._checksum(files), "files": files}
    memory.write_text(json.dumps(document))


@pytest.mark.parametrize(
    "damage",
    [
        _cut,
        _flip_digest,
        _renumber,
        _add_field,
        lambda memory: memory.write_bytes(b"\xff\x00"),
        lambda memory: memory.write_bytes(b"[1]"),
        lambda memory: memory.write_bytes(b'{"files": 1, "version": 1, "checksum": 1}'),
        lambda memory: memory.chmod(0o666),
        lambda memory: memory.unlink(),
    ],
)
def test_damaged_memory_costs_a_hash(bench: Bench, damage: Callable[[Path], None]) -> None:
    assert bench.is_right()
    damage(bench.memory)
    assert bench.is_right()
    assert bench.hash_count == 2
    assert bench.is_right()
    assert bench.hash_count == 2, "a sound one has taken its place"


def test_memory_of_another_user_is_not_believed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench.is_right()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert bench.is_right()
    assert bench.hash_count == 2


def test_memory_that_cannot_be_written_costs_a_hash(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        assert bench.is_right()
    assert list(bench.memory.parent.iterdir()) == []
    bench.memory = bench.file / "below a file"
    assert bench.is_right()
    assert bench.hash_count == 2


def test_file_that_cannot_be_read_is_an_error(bench: Bench) -> None:
    bench.file.unlink()
    with pytest.raises(FileNotFoundError):
        bench.digest()


def test_of_too_many_the_newest_are_remembered() -> None:
    files = {
        f"/{number}": HashedFile(
            byte_count=1,
            modified_ns=0,
            changed_ns=0,
            inode=1,
            device=1,
            hashed_ns=number,
            digest="",
        )
        for number in range(ENTRIES_MAX + 2)
    }
    kept = decoded(encoded(files))
    assert len(kept) == ENTRIES_MAX
    assert "/1" not in kept
    assert kept["/2"] == files["/2"]


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"KVSTORED_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/kvstored"),
        ({"XDG_CACHE_HOME": "relative"}, f"{Path.home()}/.cache/kvstored"),
        ({}, f"{Path.home()}/.cache/kvstored"),
    ],
)
def test_folder_of_the_user(environment: dict[str, str], folder: str) -> None:
    assert default_memory(environment) == Path(folder) / module.FILE_NAME


def test_nothing_is_remembered_without_a_folder(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError

    assert default_memory({"KVSTORED_CACHE": ""}) is None
    monkeypatch.setattr(Path, "home", homeless)
    assert default_memory({}) is None
    monkeypatch.setattr(module, "default_memory", lambda: None)
    assert file_digests([bench.file]) == [hashlib.sha256(b"weights").digest()]
