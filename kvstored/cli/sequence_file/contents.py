"""What the frames of an exported file say. Pure."""

import json
import struct
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from kvstored.cli.sequence_file.frames import FileDamagedError
from kvstored_contract.layout import LayoutError, StateLayout
from kvstored_contract.limits import KEY_BYTES
from kvstored_protos.v1 import common_pb2

_CHUNK = struct.Struct(f"<{KEY_BYTES}sII")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileHeader:
    """The sequence in a file: its chunks are complete, and follow in order."""

    name: str
    namespace: str
    layout: StateLayout
    chunk_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChunk:
    """A chunk: ``states`` are its slices, layer after layer, each as long as ``slice_bytes``."""

    key: bytes
    token_count: int
    slice_bytes: tuple[int, ...]
    states: bytes


def header_bytes(header: FileHeader) -> bytes:
    """A header as a frame has it."""
    document = {
        "sequence": header.name,
        "namespace": header.namespace,
        "chunk_count": header.chunk_count,
        "layout": b64encode(header.layout.to_proto().SerializeToString()).decode(),
    }
    return json.dumps(document).encode()


def header_of(raw: bytes) -> FileHeader:
    """Parses a header; raises FileDamagedError."""
    try:
        document = json.loads(raw)
        message = common_pb2.StateLayout.FromString(b64decode(document["layout"], validate=True))
        return FileHeader(
            name=str(document["sequence"]),
            namespace=str(document["namespace"]),
            layout=StateLayout.from_proto(message),
            chunk_count=int(document["chunk_count"]),
        )
    except (ValueError, KeyError, TypeError, DecodeError, LayoutError) as error:
        raise FileDamagedError("its header is none of this program's") from error


def chunk_bytes(chunk: FileChunk) -> bytes:
    """A chunk as a frame has it."""
    lengths = chunk.slice_bytes
    head = _CHUNK.pack(chunk.key, chunk.token_count, len(lengths))
    return b"".join((head, struct.pack(f"<{len(lengths)}I", *lengths), chunk.states))


def chunk_of(raw: bytes, layout: StateLayout) -> FileChunk:
    """Parses a chunk that the layout allows; raises FileDamagedError."""
    wrong = FileDamagedError("a chunk in it does not fit its layout")
    if len(raw) < _CHUNK.size:
        raise wrong
    key, token_count, layer_count = _CHUNK.unpack_from(raw)
    states_at = _CHUNK.size + 4 * layer_count
    if layer_count != layout.layer_count or len(raw) < states_at:
        raise wrong
    lengths = struct.unpack_from(f"<{layer_count}I", raw, _CHUNK.size)
    if not fit(lengths, layout) or len(raw) != states_at + sum(lengths):
        raise wrong
    if token_count != layout.chunk_tokens:
        raise wrong
    return FileChunk(key=key, token_count=token_count, slice_bytes=lengths, states=raw[states_at:])


def fit(lengths: Sequence[int], layout: StateLayout) -> bool:
    """Whether slices of a complete chunk may have these lengths."""
    most = [layout.slice_bytes(layer) for layer in range(layout.layer_count)]
    if not layout.is_encoded:
        return list(lengths) == most
    return all(0 <= length <= limit for length, limit in zip(lengths, most, strict=True))


def end_bytes(checksums: Sequence[int]) -> bytes:
    """The last frame: how many chunks there are, and the checksums of all of them."""
    return struct.pack(f"<{1 + len(checksums)}Q", len(checksums), *checksums)
