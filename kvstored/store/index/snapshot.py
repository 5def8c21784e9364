"""What a clean stop knows of the chunks, kept in a file beside the index.

It saves the next start the walk through the index, and it keeps the order of use, which
the index does not have. It is good for exactly one state of the index: its header names
the device set, the epoch, the index's revision and its number of chunks, and every part
carries a checksum. The process that opens the file takes its name away before
the index changes.
"""

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kvstored.format.errors import FormatError
from kvstored.store.index.directory import sync_directory
from kvstored.store.space.claim_block import ClaimBlock
from kvstored.store.space.claim_stream import ClaimWriter, PartKind, read_parts

SNAPSHOT_FILE = "SNAPSHOT"
_TEMPORARY_FILE = "SNAPSHOT.new"
_VERSION = 1
_HEAD = struct.Struct("<H6x16sQQQQ")
_BUFFER_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHead:
    """The state of the index that a snapshot belongs to; ``set_id`` has 16 bytes.

    ``next_stamp`` is above every stamp in the index and every time of use.
    """

    set_id: bytes
    epoch: int
    revision: int
    chunk_count: int
    next_stamp: int

    def encode(self) -> bytes:
        """The payload of the header."""
        return _HEAD.pack(
            _VERSION, self.set_id, self.epoch, self.revision, self.chunk_count, self.next_stamp
        )

    @classmethod
    def decode(cls, payload: bytes) -> "SnapshotHead":
        """Parses the payload of the header; raises FormatError."""
        if len(payload) != _HEAD.size:
            raise FormatError(f"snapshot header of {len(payload)} bytes")
        version, set_id, epoch, revision, chunk_count, next_stamp = _HEAD.unpack(payload)
        if version != _VERSION:
            raise FormatError(f"snapshot version {version}, expected {_VERSION}")
        return cls(
            set_id=set_id,
            epoch=epoch,
            revision=revision,
            chunk_count=chunk_count,
            next_stamp=next_stamp,
        )


def write_snapshot(folder: Path, head: SnapshotHead, blocks: Iterable[ClaimBlock]) -> None:
    """Writes the snapshot of the index in ``folder``, durable or not at all; raises OSError."""
    temporary = folder / _TEMPORARY_FILE
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb", _BUFFER_BYTES) as file:
            writer = ClaimWriter(file)
            writer.header(head.encode())
            for block in blocks:
                writer.claims(block)
            writer.end()
            file.flush()
            os.fsync(descriptor)
        temporary.rename(folder / SNAPSHOT_FILE)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(folder)


def open_snapshot(folder: Path) -> IO[bytes] | None:
    """The snapshot in ``folder``, to be read by ``read_snapshot``; None when there is none."""
    try:
        return (folder / SNAPSHOT_FILE).open("rb", _BUFFER_BYTES)
    except OSError:
        return None


def remove_snapshot(folder: Path) -> None:
    """Takes away the snapshot's name and what an interrupted stop left; not yet durable."""
    for name in (SNAPSHOT_FILE, _TEMPORARY_FILE):
        (folder / name).unlink(missing_ok=True)


def read_snapshot(file: IO[bytes]) -> tuple[SnapshotHead, Iterator[ClaimBlock]]:
    """The head of a snapshot, and its claims.

    Stamps of the claims are times of use. Raises FormatError, also while the claims are
    taken: they count only together.
    """
    parts = read_parts(file)
    kind, payload = next(parts, (None, b""))
    if kind is not PartKind.HEADER:
        raise FormatError("a snapshot without header")
    head = SnapshotHead.decode(payload)
    return head, (ClaimBlock.decode(payload) for _, payload in parts)
