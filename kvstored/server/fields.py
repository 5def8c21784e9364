"""Validation of request fields. Pure: a value, or RefusedError with one sentence."""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TypeVar

from kvstored.server.errors import refuse
from kvstored.store.placement import Placement
from kvstored.tiers.requests import NewChunk
from kvstored_contract.board import WORD_BYTES, board_bytes
from kvstored_contract.layout import StateLayout
from kvstored_contract.limits import (
    BLOCKS_PER_CALL_MAX,
    CHUNKS_PER_CALL_MAX,
    KEY_BYTES,
    SEQUENCE_NAME_BYTES_MAX,
)
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import common_pb2, store_pb2

EnumT = TypeVar("EnumT", bound=IntEnum)


def checked_keys(keys: Sequence[bytes]) -> tuple[bytes, ...]:
    """At least one chunk key and at most CHUNKS_PER_CALL_MAX."""
    check_chunk_count(len(keys))
    for index, key in enumerate(keys):
        if len(key) != KEY_BYTES:
            refuse(Reason.FIELD_INVALID, f"key {index} has {len(key)} bytes; a key has {KEY_BYTES}")
    return tuple(keys)


def check_chunk_count(chunk_count: int) -> None:
    """Refuses a call without chunks, or with too many."""
    if chunk_count == 0:
        refuse(Reason.FIELD_INVALID, "the call names no chunk")
    if chunk_count > CHUNKS_PER_CALL_MAX:
        refuse(
            Reason.LIMIT_EXCEEDED,
            f"the call names {chunk_count} chunks; at most {CHUNKS_PER_CALL_MAX} go into one call",
        )


def new_chunks(
    chunks: Iterable[store_pb2.PutChunk], *, layout: StateLayout
) -> tuple[NewChunk, ...]:
    """The chunks of a put."""
    parsed = tuple(
        NewChunk(part.key, part.parent_key, part.token_count, part.stripe) for part in chunks
    )
    checked_keys([chunk.key for chunk in parsed])
    for index, chunk in enumerate(parsed):
        if len(chunk.parent_key) not in (0, KEY_BYTES):
            refuse(
                Reason.FIELD_INVALID,
                f"the parent key of chunk {index} has {len(chunk.parent_key)} bytes; it has "
                f"{KEY_BYTES} or is empty",
            )
        if not 1 <= chunk.token_count <= layout.chunk_tokens:
            refuse(
                Reason.FIELD_INVALID,
                f"chunk {index} has {chunk.token_count} tokens; this layout allows 1 to "
                f"{layout.chunk_tokens}",
            )
    return parsed


def enum_value(kind: type[EnumT], value: int, field: str) -> EnumT:
    """The member of a closed enum."""
    try:
        return kind(value)
    except ValueError:
        refuse(
            Reason.FIELD_INVALID,
            f"{field} is {value}; it must be one of {', '.join(member.name for member in kind)}",
        )


def bounded(value: int, field: str, *, least: int, most: int) -> int:
    """An integer within both bounds."""
    if not least <= value <= most:
        refuse(Reason.FIELD_INVALID, f"{field} is {value}; it must be {least} to {most}")
    return value


def checked_placement(
    message: common_pb2.Placement,
    *,
    arena_bytes: int,
    chunk_count: int,
    slice_bytes: Sequence[int],
) -> Placement:
    """A placement of which every slice lies inside the arena; raises PlacementError too."""
    if len(message.block_offsets) > BLOCKS_PER_CALL_MAX:
        refuse(
            Reason.LIMIT_EXCEEDED,
            f"the placement has {len(message.block_offsets)} block offsets; at most "
            f"{BLOCKS_PER_CALL_MAX} go into one call",
        )
    placement = Placement(
        base=message.base,
        layer_stride=message.layer_stride,
        chunk_stride=message.chunk_stride,
        block_offsets=tuple(message.block_offsets),
    )
    placement.check(arena_bytes=arena_bytes, chunk_count=chunk_count, slice_bytes=slice_bytes)
    return placement


def board_range(
    offset: int, *, arena_bytes: int, chunk_count: int, layer_count: int
) -> tuple[int, int]:
    """First byte and end of a board inside the arena."""
    if offset % WORD_BYTES:
        refuse(Reason.ARENA_RANGE, f"board_offset {offset} is not a multiple of {WORD_BYTES} bytes")
    end = offset + board_bytes(chunk_count=chunk_count, layer_count=layer_count)
    if end > arena_bytes:
        refuse(
            Reason.ARENA_RANGE,
            f"the board ends at byte {end} of an arena of {arena_bytes} bytes",
        )
    return offset, end


def check_layers(first_layer: int, layer_count: int, layout: StateLayout) -> None:
    """Refuses an empty layer range, or one beyond the layout's last layer."""
    if layer_count == 0 or first_layer + layer_count > layout.layer_count:
        refuse(
            Reason.FIELD_INVALID,
            f"layers {first_layer} to {first_layer + layer_count} are no range of a layout "
            f"of {layout.layer_count} layers",
        )


def sequence_name(name: str, field: str = "name") -> str:
    """A name of 1 to SEQUENCE_NAME_BYTES_MAX bytes."""
    if not 1 <= len(name.encode()) <= SEQUENCE_NAME_BYTES_MAX:
        refuse(
            Reason.FIELD_INVALID,
            f"{field} has {len(name.encode())} bytes; a sequence name has 1 to "
            f"{SEQUENCE_NAME_BYTES_MAX}",
        )
    return name
