import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvstored.format.errors import FormatError
from kvstored.store.index.snapshot import (
    SNAPSHOT_FILE,
    SnapshotHead,
    open_snapshot,
    read_snapshot,
    remove_snapshot,
    write_snapshot,
)
from kvstored.store.space.claim_stream import ClaimWriter
from tests.kvstored.store.space.test_claim_block import block, columns

STATE = SnapshotHead(set_id=b"s" * 16, epoch=3, revision=44, chunk_count=5, next_stamp=2**63)


def test_a_snapshot_comes_back(tmp_path: Path) -> None:
    write_snapshot(tmp_path, STATE, [block(3), block(2, seed=2)])
    assert [path.name for path in tmp_path.iterdir()] == [SNAPSHOT_FILE]
    file = open_snapshot(tmp_path)
    assert file is not None
    # What is open outlives its name.
    remove_snapshot(tmp_path)
    with file:
        state, claims = read_snapshot(file)
        assert state == STATE
        assert [columns(one) for one in claims] == [columns(block(3)), columns(block(2, seed=2))]
    assert open_snapshot(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_a_snapshot_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    def blocks():
        yield block(1)
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write_snapshot(tmp_path, STATE, blocks())
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_one_is_removed(tmp_path: Path) -> None:
    class Interrupt(BaseException):
        pass

    def blocks():
        yield block(1)
        raise Interrupt

    with pytest.raises(Interrupt):
        write_snapshot(tmp_path, STATE, blocks())
    assert open_snapshot(tmp_path) is None
    remove_snapshot(tmp_path)
    assert list(tmp_path.iterdir()) == []


def stream(header: bytes | None) -> io.BytesIO:
    file = io.BytesIO()
    writer = ClaimWriter(file)
    if header is not None:
        writer.header(header)
    writer.claims(block(1))
    writer.end()
    return io.BytesIO(file.getvalue())


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, "without header"),
        (STATE.encode()[:-1], "header of"),
        (b"\2" + STATE.encode()[1:], "version 2"),
    ],
)
def test_other_headers_are_refused(header: bytes | None, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read_snapshot(stream(header))


def test_an_empty_file_is_refused() -> None:
    with pytest.raises(FormatError, match="cut off"):
        read_snapshot(io.BytesIO())


@pytest.mark.parametrize("field", ["epoch", "revision", "chunk_count", "next_stamp"])
def test_every_field_tells_states_apart(field: str) -> None:
    change: dict[str, Any] = {field: 1}
    other = replace(STATE, **change)
    assert SnapshotHead.decode(other.encode()) == other != STATE
