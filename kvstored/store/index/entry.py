"""The tables of the index, and how their entries become bytes and values again.

Values of every table carry a checksum that covers the entry's key, because LMDB
verifies neither.
"""

import struct
from collections.abc import Callable, Mapping
from enum import Enum

from kvstored.format import layout_record
from kvstored.format.chunk_record import RECORD_BYTES, ChunkRecord
from kvstored.format.errors import FormatError
from kvstored.format.geometry import Extent
from kvstored.format.identity import CHUNK_ID_BYTES, NAMESPACE_ID_BYTES, ChunkId
from kvstored.format.sequence_record import SequenceRecord
from kvstored.format.slice_lengths import PART_BYTES, PART_KEY_BYTES, decode_part
from kvstored.store.index.meta import IndexMeta
from kvstored_contract.limits import SEQUENCE_NAME_BYTES_MAX

META_KEY = b"meta"
_QUARANTINE_KEY = struct.Struct(">HQ")


class Table(Enum):
    """The named databases inside the LMDB environment."""

    CHUNKS = b"chunks"
    LENGTHS = b"lengths"
    QUARANTINE = b"quarantine"
    LAYOUTS = b"layouts"
    SEQUENCES = b"sequences"
    META = b"meta"


ENTRY_SIZES: Mapping[Table, tuple[int, int]] = {
    Table.CHUNKS: (CHUNK_ID_BYTES, RECORD_BYTES),
    Table.LENGTHS: (PART_KEY_BYTES, PART_BYTES),
}
"""Bytes of every key and of every value, for the tables where all entries are alike."""


def quarantine_key(extent: Extent) -> bytes:
    """Key of a quarantine entry: where the extent starts; keys sort by device, then offset."""
    return _QUARANTINE_KEY.pack(extent.device_index, extent.offset)


def encode_quarantine(chunk: ChunkId, record: ChunkRecord) -> bytes:
    """Value of a quarantine entry: the chunk's identity, then its record."""
    return chunk.encode() + record.encode(chunk)


def decode_quarantine(key: bytes, value: bytes) -> tuple[ChunkId, ChunkRecord]:
    """Parses a quarantine entry; raises FormatError."""
    chunk = ChunkId.decode(value[:CHUNK_ID_BYTES])
    record = ChunkRecord.decode(chunk, value[CHUNK_ID_BYTES:])
    if quarantine_key(record.extent) != key:
        raise FormatError("quarantine entry under the key of another extent")
    return chunk, record


def sequence_key(namespace_id: bytes, name: str) -> bytes:
    """Key of a sequence entry: namespace id, then the name in UTF-8.

    Raises ValueError for a name that no store accepts.
    """
    encoded = name.encode()
    if not 1 <= len(encoded) <= SEQUENCE_NAME_BYTES_MAX:
        raise ValueError(
            f"a sequence name has 1 to {SEQUENCE_NAME_BYTES_MAX} bytes in UTF-8, not {len(encoded)}"
        )
    return namespace_id + encoded


def sequence_name(key: bytes) -> str:
    """The name inside a sequence entry's key; raises FormatError."""
    try:
        return key[NAMESPACE_ID_BYTES:].decode()
    except UnicodeDecodeError as error:
        raise FormatError("sequence name is not UTF-8") from error


def decode_sequence(key: bytes, value: bytes) -> tuple[bytes, SequenceRecord]:
    """Namespace id and record of a sequence; raises FormatError."""
    return key[:NAMESPACE_ID_BYTES], SequenceRecord.decode(key, value)


def verified_sequence_name(key: bytes, value: bytes) -> str:
    """Name of a sequence whose record is sound; raises FormatError."""
    SequenceRecord.decode(key, value)
    return sequence_name(key)


VERIFY: Mapping[Table, Callable[[bytes, bytes], object]] = {
    Table.CHUNKS: lambda key, value: ChunkRecord.decode(ChunkId.decode(key), value),
    Table.LENGTHS: decode_part,
    Table.QUARANTINE: decode_quarantine,
    Table.LAYOUTS: layout_record.decode,
    Table.SEQUENCES: verified_sequence_name,
    Table.META: lambda _, value: IndexMeta.decode(value),
}
"""For each table, what raises FormatError when an entry (key, value) is damaged."""
