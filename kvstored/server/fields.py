"""Validation of request fields: a value, or RefusedError with one sentence."""

from array import array
from collections.abc import Sequence
from enum import IntEnum
from typing import TypeVar

from kvstored.format.geometry import LengthBounds
from kvstored.server.errors import refuse
from kvstored.store.read.placement import Placement
from kvstored.store.write.append_rows import completed_chunks
from kvstored.tiers.chunks.requests import AppendItem, NewChunk
from kvstored.turnstile import TURNSTILE
from kvstored_contract.board import WORD_BYTES, board_bytes
from kvstored_contract.layout import StateLayout
from kvstored_contract.limits import (
    BLOCKS_PER_CALL_MAX,
    CHUNKS_PER_CALL_MAX,
    ITEMS_PER_APPEND_MAX,
    KEY_BYTES,
    NOTE_BYTES_MAX,
    NOTES_BYTES_PER_CALL_MAX,
    ROWS_PER_APPEND_MAX,
    SEQUENCE_NAME_BYTES_MAX,
    SLICE_LENGTHS_PER_CALL_MAX,
)
from kvstored_contract.reasons import Reason
from kvstored_contract.snapshot import SnapshotGeometry
from kvstored_protos.v1 import common_pb2, store_pb2

TOKENS_MAX = 2**48
"""Positions of tokens stay far below what arithmetic on them could overflow."""

NUMBERS_AT_ONCE = 4096
"""Numbers that are converted in one step of the interpreter."""

EnumT = TypeVar("EnumT", bound=IntEnum)


def checked_keys(keys: Sequence[bytes]) -> tuple[bytes, ...]:
    """At least one chunk key and at most CHUNKS_PER_CALL_MAX."""
    check_chunk_count(len(keys))
    checked = tuple(keys)
    for index, length in enumerate(map(len, checked)):
        if length != KEY_BYTES:
            refuse(Reason.FIELD_INVALID, f"key {index} has {length} bytes; a key has {KEY_BYTES}")
    return checked


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
    chunks: Sequence[store_pb2.PutChunk], *, layout: StateLayout
) -> tuple[NewChunk, ...]:
    """The chunks of a put."""
    lengths_count = sum(len(part.slice_bytes) for part in chunks)
    if lengths_count > SLICE_LENGTHS_PER_CALL_MAX:
        refuse(
            Reason.LIMIT_EXCEEDED,
            f"the put has {lengths_count} lengths of slices; at most "
            f"{SLICE_LENGTHS_PER_CALL_MAX} go into one call: put fewer chunks at once",
        )
    _check_notes([len(part.note) for part in chunks])
    parsed = tuple(
        [
            NewChunk(
                one.key,
                one.parent_key,
                one.token_count,
                one.stripe,
                tuple(one.slice_bytes),
                one.note,
            )
            for part in TURNSTILE.parts(chunks)
            for one in part
        ]
    )
    checked_keys([chunk.key for chunk in parsed])
    bounds = LengthBounds.of(layout) if layout.is_encoded else None
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
        problem = _lengths_problem(bounds, chunk.slice_bytes)
        if problem is not None:
            refuse(Reason.FIELD_INVALID, f"chunk {index} cannot be stored: {problem}")
    return parsed


def _check_notes(lengths: Sequence[int]) -> None:
    for index, length in enumerate(lengths):
        if length > NOTE_BYTES_MAX:
            refuse(
                Reason.LIMIT_EXCEEDED,
                f"the note of chunk {index} has {length} bytes; it has at most {NOTE_BYTES_MAX}",
            )
    if sum(lengths) > NOTES_BYTES_PER_CALL_MAX:
        refuse(
            Reason.LIMIT_EXCEEDED,
            f"the put has {sum(lengths)} bytes of notes; at most {NOTES_BYTES_PER_CALL_MAX} go "
            "into one call: put fewer chunks at once",
        )


def _lengths_problem(bounds: LengthBounds | None, lengths: tuple[int, ...]) -> str | None:
    """Why a put cannot have these lengths of slices; None when it can.

    Without a codec there are no bounds.
    """
    if bounds is not None:
        return bounds.problem(lengths)
    return "its layout has no codec, and so no lengths of slices" if lengths else None


def append_items(request: store_pb2.AppendRequest, layout: StateLayout) -> tuple[AppendItem, ...]:
    """The items of an append: rows of the snapshot, and one key for each completed chunk."""
    count = len(request.items)
    if count == 0:
        refuse(Reason.FIELD_INVALID, "the append has no item")
    if count > ITEMS_PER_APPEND_MAX:
        refuse(
            Reason.LIMIT_EXCEEDED,
            f"the append has {count} items; at most {ITEMS_PER_APPEND_MAX} go into one call",
        )
    check_rows(request.row_count)
    key_count = sum(len(item.keys) for item in request.items)
    if key_count:
        check_chunk_count(key_count)
    if len({item.sequence for item in request.items}) < count:
        refuse(Reason.FIELD_INVALID, "the append names a sequence twice; join its items")
    return tuple([_append_item(item, request.row_count, layout) for item in request.items])


def check_rows(row_count: int) -> None:
    """Refuses a snapshot without rows, or with too many."""
    bounded(row_count, "row_count", least=1, most=ROWS_PER_APPEND_MAX)


def _append_item(item: store_pb2.AppendItem, row_count: int, layout: StateLayout) -> AppendItem:
    name = sequence_name(item.sequence, "sequence")
    bounded(item.token_count, "token_count", least=1, most=row_count)
    if item.first_row + item.token_count > row_count:
        refuse(
            Reason.FIELD_INVALID,
            f"rows {item.first_row} to {item.first_row + item.token_count} are not in a snapshot "
            f"of {row_count} rows",
        )
    bounded(item.first_token, "first_token", least=0, most=TOKENS_MAX)
    completed = completed_chunks(
        first_token=item.first_token,
        token_count=item.token_count,
        chunk_tokens=layout.chunk_tokens,
    )
    if len(item.keys) != completed:
        refuse(
            Reason.FIELD_INVALID,
            f"tokens {item.first_token} to {item.first_token + item.token_count} complete "
            f"{completed} chunks of {layout.chunk_tokens} tokens but come with "
            f"{len(item.keys)} keys",
        )
    return AppendItem(
        name=name,
        first_token=item.first_token,
        first_row=item.first_row,
        token_count=item.token_count,
        keys=checked_keys(item.keys) if item.keys else (),
    )


def snapshot_range(
    request: store_pb2.AppendRequest, *, layout: StateLayout, arena_bytes: int
) -> tuple[int, int]:
    """First byte and end of a snapshot inside the arena; raises LayoutError too."""
    start = request.snapshot_offset
    end = start + SnapshotGeometry(layout, request.row_count).byte_count
    if end > arena_bytes:
        refuse(
            Reason.ARENA_RANGE,
            f"the snapshot ends at byte {end} of an arena of {arena_bytes} bytes",
        )
    return start, end


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
        block_offsets=as_array(message.block_offsets),
    )
    placement.check(arena_bytes=arena_bytes, chunk_count=chunk_count, slice_bytes=slice_bytes)
    return placement


def as_array(values: Sequence[int]) -> "array[int]":
    """The numbers of a repeated field; no step of it keeps other threads waiting for long.

    As an array they are gone at once when they are not needed any more.
    """
    numbers = array("Q")
    for part in TURNSTILE.parts(values, NUMBERS_AT_ONCE):
        numbers.extend(part)
    return numbers


def board_range(
    offset: int, *, arena_bytes: int, chunk_count: int, layer_count: int, has_lengths: bool
) -> tuple[int, int]:
    """First byte and end of a board inside the arena."""
    if offset % WORD_BYTES:
        refuse(Reason.ARENA_RANGE, f"board_offset {offset} is not a multiple of {WORD_BYTES} bytes")
    end = offset + board_bytes(
        chunk_count=chunk_count, layer_count=layer_count, has_lengths=has_lengths
    )
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
