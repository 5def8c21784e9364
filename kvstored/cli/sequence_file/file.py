"""An exported file as it is written and read: one chunk in memory at a time."""

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from kvstored.cli.errors import CommandError
from kvstored.cli.sequence_file.contents import (
    FileChunk,
    FileHeader,
    chunk_bytes,
    chunk_of,
    end_bytes,
    header_bytes,
    header_of,
)
from kvstored.cli.sequence_file.frames import (
    FRAME_BYTES_MAX,
    HEAD,
    START,
    FileDamagedError,
    FrameHead,
    FrameKind,
    check_start,
    packed_frame,
    parsed_head,
    unpacked_frame,
)


def write_file(path: Path, header: FileHeader, chunks: Iterable[FileChunk]) -> int:
    """Writes a whole file beside ``path`` and renames it; returns its bytes.

    Nothing is at ``path`` unless all of it is, and only its owner may read it: states are as secret
    as the text. Raises what ``chunks`` raises, OSError, and CommandError for too large a chunk.
    """
    descriptor, name = tempfile.mkstemp(".part", f"{path.name}.", path.parent)
    part = Path(name)
    checksums: list[int] = []
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(START)
            file.write(packed_frame(0, FrameKind.HEADER, header_bytes(header)))
            for number, chunk in enumerate(chunks, start=1):
                raw = chunk_bytes(chunk)
                frame = packed_frame(number, FrameKind.CHUNK, raw)
                _check_size(max(len(raw), len(frame) - HEAD.size))
                checksums.append(parsed_head(frame[: HEAD.size]).checksum)
                file.write(frame)
            number = len(checksums) + 1
            file.write(packed_frame(number, FrameKind.END, end_bytes(checksums)))
            byte_count = file.tell()
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return byte_count


def read_header(path: Path) -> FileHeader:
    """The header of a file; raises CommandError."""
    with _opened(path) as file:
        try:
            return _header(file)
        except FileDamagedError as error:
            raise _refusal(path, error) from error


def read_chunks(path: Path) -> Iterator[FileChunk]:
    """The chunks of a file, each verified before it is yielded; raises CommandError.

    Ends only where the file is whole: the last frame vouches for all.
    """
    with _opened(path) as file:
        try:
            header = _header(file)
            checksums: list[int] = []
            for number in range(1, header.chunk_count + 1):
                head, raw = _frame(file, number, FrameKind.CHUNK)
                checksums.append(head.checksum)
                yield chunk_of(raw, header.layout)
            _, end = _frame(file, header.chunk_count + 1, FrameKind.END)
            _check_end(end, checksums, file.read(1))
        except FileDamagedError as error:
            raise _refusal(path, error) from error


def _check_size(byte_count: int) -> None:
    if byte_count > FRAME_BYTES_MAX:
        raise CommandError(
            f"a chunk of {byte_count} bytes fits into no file, which takes {FRAME_BYTES_MAX}"
        )


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from error


def _header(file: BinaryIO) -> FileHeader:
    check_start(file.read(len(START)))
    return header_of(_frame(file, 0, FrameKind.HEADER)[1])


def _frame(file: BinaryIO, number: int, kind: FrameKind) -> tuple[FrameHead, bytes]:
    head = parsed_head(file.read(HEAD.size))
    if head.kind is not kind:
        raise FileDamagedError(f"frame {number} is damaged: another one stands in its place")
    return head, unpacked_frame(number, head, file.read(head.packed_bytes))


def _check_end(end: bytes, checksums: Sequence[int], rest: bytes) -> None:
    if end != end_bytes(checksums) or rest:
        raise FileDamagedError("its end does not belong to it")


def _refusal(path: Path, error: FileDamagedError) -> CommandError:
    return CommandError(f"{path} is not imported: {error}; nothing of it is used")
