"""A file of three chunks: whatever is flipped, cut, moved or added, it is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstored.cli.errors import CommandError
from kvstored.cli.sequence_file import file as file_module
from kvstored.cli.sequence_file.contents import FileChunk
from kvstored.cli.sequence_file.file import read_chunks, read_header, write_file
from kvstored.cli.sequence_file.frames import HEAD, START, FrameKind, packed_frame, parsed_head
from tests.kvstored.cli.sequence_file.test_contents import CHUNK, HEADER

CHUNKS = [
    FileChunk(key=bytes([n]) * 32, token_count=4, slice_bytes=(64, 32), states=bytes([n]) * 96)
    for n in range(3)
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "chat.kv"
    assert write_file(path, HEADER, CHUNKS) == path.stat().st_size
    assert [entry.name for entry in tmp_path.iterdir()] == ["chat.kv"]
    return path


def refused(path: Path) -> str:
    with pytest.raises(CommandError) as error:
        list(read_chunks(path))
    return str(error.value)


def frame_starts(data: bytes) -> list[int]:
    starts, at = [], len(START)
    while at < len(data):
        starts.append(at)
        at += HEAD.size + parsed_head(data[at : at + HEAD.size]).packed_bytes
    return [*starts, at]


def test_what_was_written_is_read(file: Path) -> None:
    assert read_header(file) == HEADER
    assert list(read_chunks(file)) == CHUNKS


def test_anybody_could_read_what_was_exported(file: Path) -> None:
    """Bug: it had the permissions of the umask."""
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_chunk_that_no_file_takes_was_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "FRAME_BYTES_MAX", 100)
    with pytest.raises(CommandError, match="which takes 100"):
        write_file(tmp_path / "chat.kv", HEADER, CHUNKS)
    assert list(tmp_path.iterdir()) == []


def test_any_flipped_byte_is_refused(file: Path) -> None:
    data = file.read_bytes()
    for place in range(len(data)):
        file.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        assert str(file) in refused(file)


def test_any_cut_is_refused(file: Path) -> None:
    data = file.read_bytes()
    for length in range(len(data)):
        file.write_bytes(data[:length])
        assert "nothing of it is used" in refused(file)


def test_frames_that_moved_are_refused(file: Path) -> None:
    data = file.read_bytes()
    starts = frame_starts(data)
    first, second = (data[starts[n] : starts[n + 1]] for n in (1, 2))
    head, rest = data[: starts[1]], data[starts[3] :]
    for middle in (second + first, first + first, first):
        file.write_bytes(head + middle + rest)
        assert "frame" in refused(file)


def test_an_end_of_another_file_is_refused(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_file(other, HEADER, [CHUNKS[0], CHUNKS[1], CHUNK])
    data, foreign = file.read_bytes(), other.read_bytes()
    file.write_bytes(data[: frame_starts(data)[-2]] + foreign[frame_starts(foreign)[-2] :])
    assert "its end does not belong to it" in refused(file)


def test_what_follows_the_end_is_refused(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"0")
    assert "its end does not belong to it" in refused(file)


def test_another_version_and_another_kind_of_file(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(START) - 4] = 2
    file.write_bytes(data)
    assert "version 2" in refused(file)
    file.write_bytes(b"something else")
    assert "no exported sequence" in refused(file)
    with pytest.raises(CommandError, match="cannot be read"):
        read_header(file.with_name("absent"))


def test_a_frame_whose_length_lies(file: Path) -> None:
    frame = bytearray(packed_frame(0, FrameKind.HEADER, b"x" * 100))
    frame[4] = 99
    file.write_bytes(START + frame)
    with pytest.raises(CommandError, match="frame 0 is damaged"):
        read_header(file)


def test_nothing_is_left_of_an_export_that_fails(tmp_path: Path) -> None:
    def chunks() -> Iterator[FileChunk]:
        yield CHUNK
        raise CommandError("gone")

    with pytest.raises(CommandError, match="gone"):
        write_file(tmp_path / "chat.kv", HEADER, chunks())
    assert list(tmp_path.iterdir()) == []
