"""Sequences leave a daemon as files and come back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvstored.cli.sequence_file import import_command
from kvstored.cli.sequence_file.transfer import store_chunks
from kvstored_client import Client, Placement, StoreError
from tests.kvstored.cli.operate.conftest import CHUNK_BYTES, LAYOUT, Verb, store_sequence
from tests.support.daemon import DaemonProcess


def states_of(client: Client, keys: list[bytes]) -> bytes:
    with client.allocate(Placement.contiguous_bytes(LAYOUT, len(keys))) as region:  # type: ignore[union-attr]  # a strict client raises
        region.view[:] = bytes(len(region.view))
        with client.read(LAYOUT, keys, Placement.contiguous(region, LAYOUT)) as read:
            read.wait()
            assert all(read.is_resident(index) for index in range(len(keys)))
        return bytes(region.view)


def test_a_sequence_comes_back_as_it_was(
    operated: DaemonProcess, verb: Verb, tmp_path: Path
) -> None:
    file = tmp_path / "travels.kv"
    with Client(operated.socket_path, strict=True) as client:
        keys = store_sequence(client, "travels", 4)
        before = states_of(client, keys)
        status, exported = verb("export", "travels", str(file))
        assert (status, exported["chunks"], exported["tokens"]) == (0, 4, 64)
        assert exported["file_bytes"] == file.stat().st_size
        status, sentence = verb("export", "travels", str(file))
        assert (status, "--force" in sentence) == (2, True)
        status, sentence = verb("import", str(file))
        assert (status, "already" in sentence) == (2, True)
        client.sequences.delete("travels")
        assert client.delete(keys) == 4
        assert verb("import", str(file), "--check")[1]["chunks"] == 4
        assert client.match(LAYOUT, keys).chunk_count == 0
        status, imported = verb("import", str(file), "--name", "back")
        assert (status, imported["stored_chunks"], imported["sequence"]) == (0, 4, "back")
        assert states_of(client, keys) == before
        assert len(before) == 4 * CHUNK_BYTES
        back = client.sequences.get("back")
        assert back is not None
        assert list(back.keys) == keys


def test_a_file_that_cannot_be_written_was_a_traceback(
    operated: DaemonProcess, verb: Verb, tmp_path: Path
) -> None:
    """Bug: and the status was that of a verb that ran and found something wrong."""
    with Client(operated.socket_path, strict=True) as client:
        store_sequence(client, "nowhere", 2)
    status, sentence = verb("export", "nowhere", str(tmp_path / "no" / "such.kv"))
    assert (status, sentence.count("\n")) == (2, 1)
    assert "No such file or directory; name another file" in sentence
    assert list(tmp_path.iterdir()) == []


def test_a_sequence_with_holes_was_called_stored(
    operated: DaemonProcess, verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the store had evicted its first chunks before it had the last ones."""
    file = tmp_path / "large.kv"
    with Client(operated.socket_path, strict=True) as client:
        keys = store_sequence(client, "large", 3)
        verb("export", "large", str(file))
        client.sequences.delete("large")

        def evicting(*arguments: Any) -> Iterator[tuple[int, int]]:
            yield from store_chunks(*arguments)
            assert client.delete(keys[:1]) == 1

        monkeypatch.setattr(import_command, "store_chunks", evicting)
        status, sentence = verb("import", str(file))
        assert (status, "the sequence is not made" in sentence) == (2, True)
        assert "large" not in client.sequences.list()


def test_half_a_sequence_stayed_where_the_rest_failed(
    operated: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: and the next import found it there already."""
    monkeypatch.setattr(import_command, "CHUNKS_PER_CALL_MAX", 2)
    with Client(operated.socket_path, strict=True) as client:
        keys = store_sequence(client, "halves", 3)

        def refuse(*_: object, **__: object) -> None:
            raise StoreError("no")

        with monkeypatch.context() as patch:
            patch.setattr(client.sequences, "append", refuse)
            with pytest.raises(StoreError):
                import_command.make_sequence(client, LAYOUT, name="again", keys=keys)
        assert "again" not in client.sequences.list()
        import_command.make_sequence(client, LAYOUT, name="again", keys=keys)
        found = client.sequences.get("again")
        assert found is not None
        assert list(found.keys) == keys


def test_a_damaged_file_stores_nothing(operated: DaemonProcess, verb: Verb, tmp_path: Path) -> None:
    file = tmp_path / "hurt.kv"
    with Client(operated.socket_path, strict=True) as client:
        keys = store_sequence(client, "hurt", 3)
        verb("export", "hurt", str(file))
        client.sequences.delete("hurt")
        client.delete(keys)
        whole = file.read_bytes()
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        for damaged in (whole[:-1], flipped):
            file.write_bytes(damaged)
            status, sentence = verb("import", str(file))
            assert status == 2
            assert sentence.count("\n") == 1
            assert "nothing of it is used" in sentence
            assert client.match(LAYOUT, keys).chunk_count == 0
            assert "hurt" not in client.sequences.list()


def test_what_cannot_be_exported(verb: Verb, tmp_path: Path) -> None:
    status, sentence = verb("export", "absent", str(tmp_path / "absent.kv"))
    assert (status, "absent" in sentence) == (2, True)
    assert list(tmp_path.iterdir()) == []
