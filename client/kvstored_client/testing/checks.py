"""What the daemon refuses: the same requests, with the same reasons. Pure."""

from collections.abc import Sequence

from kvstored_client.testing.refusal import refuse
from kvstored_client.values import Order
from kvstored_contract.board import WORD_BYTES, board_bytes
from kvstored_contract.layout import LayoutError, StateKind, StateLayout
from kvstored_contract.limits import (
    CHUNKS_PER_CALL_MAX,
    DEADLINE_MS_MAX,
    ITEMS_PER_APPEND_MAX,
    KEY_BYTES,
    NOTE_BYTES_MAX,
    NOTES_BYTES_PER_CALL_MAX,
    PLACE_MAX,
    ROWS_PER_APPEND_MAX,
    SEQUENCE_NAME_BYTES_MAX,
    SLICE_LENGTHS_PER_CALL_MAX,
    WAITING_PER_SESSION_MAX,
)
from kvstored_contract.reasons import Reason
from kvstored_contract.snapshot import SnapshotGeometry
from kvstored_protos.v1 import sequence_pb2, store_pb2

TOKENS_MAX = 2**48
VERSION_MAX = 2**63
_ACKS = (store_pb2.ACK_STAGED, store_pb2.ACK_DURABLE)


def check_keys(keys: Sequence[bytes]) -> None:
    """Refuses a call without keys, with too many, or with one that is none."""
    check_chunk_count(len(keys))
    for index, key in enumerate(keys):
        if len(key) != KEY_BYTES:
            refuse(Reason.FIELD_INVALID, f"key {index} has {len(key)} bytes; a key has {KEY_BYTES}")


def check_chunk_count(count: int) -> None:
    """Refuses a call without chunks, or with too many."""
    if count == 0:
        refuse(Reason.FIELD_INVALID, "the call names no chunk")
    if count > CHUNKS_PER_CALL_MAX:
        refuse(Reason.LIMIT_EXCEEDED, f"the call names {count} chunks of {CHUNKS_PER_CALL_MAX}")


def check_bounds(value: int, field: str, *, least: int, most: int) -> int:
    """The value, refused outside both bounds."""
    if not least <= value <= most:
        refuse(Reason.FIELD_INVALID, f"{field} is {value}; it must be {least} to {most}")
    return value


def check_name(name: str, field: str = "name") -> str:
    """The name of a sequence, refused when it is empty or too long."""
    if not 1 <= len(name.encode()) <= SEQUENCE_NAME_BYTES_MAX:
        refuse(Reason.FIELD_INVALID, f"{field} has {len(name.encode())} bytes")
    return name


def check_put(request: store_pb2.PutRequest, layout: StateLayout) -> None:
    """Refuses a put of chunks that cannot be."""
    if request.ack not in _ACKS:
        refuse(Reason.FIELD_INVALID, f"ack is {request.ack}; it must be STAGED or DURABLE")
    check_chunk_count(len(request.chunks))
    if sum(len(chunk.slice_bytes) for chunk in request.chunks) > SLICE_LENGTHS_PER_CALL_MAX:
        refuse(Reason.LIMIT_EXCEEDED, "the put has too many lengths of slices; put fewer chunks")
    _check_notes([len(chunk.note) for chunk in request.chunks])
    check_keys([chunk.key for chunk in request.chunks])
    for index, chunk in enumerate(request.chunks):
        if len(chunk.parent_key) not in (0, KEY_BYTES):
            refuse(Reason.FIELD_INVALID, f"the parent key of chunk {index} is no key")
        check_bounds(
            chunk.token_count, f"token_count of chunk {index}", least=1, most=layout.chunk_tokens
        )
        problem = _lengths_problem(layout, chunk.slice_bytes)
        if problem:
            refuse(Reason.FIELD_INVALID, f"chunk {index} cannot be stored: {problem}")
    check_bounds(request.deadline_ms, "deadline_ms", least=0, most=DEADLINE_MS_MAX)


def _check_notes(lengths: Sequence[int]) -> None:
    if max(lengths) > NOTE_BYTES_MAX:
        refuse(Reason.LIMIT_EXCEEDED, f"a note has at most {NOTE_BYTES_MAX} bytes")
    if sum(lengths) > NOTES_BYTES_PER_CALL_MAX:
        refuse(Reason.LIMIT_EXCEEDED, "the put has too many bytes of notes; put fewer chunks")


def _lengths_problem(layout: StateLayout, lengths: Sequence[int]) -> str:
    if not layout.is_encoded:
        return "its layout has no codec, and so no lengths of slices" if lengths else ""
    if len(lengths) != layout.layer_count:
        return f"it has {len(lengths)} lengths of slices for {layout.layer_count} layers"
    for layer, length in enumerate(lengths):
        most = layout.slice_bytes(layer)
        if not min(most, 1) <= length <= most:
            return f"layer {layer} has {length} bytes; this layout allows {min(most, 1)} to {most}"
    return ""


def check_read(request: store_pb2.ReadRequest, layout: StateLayout, *, arena_bytes: int) -> int:
    """The end of a read's board; refuses a read that cannot be."""
    check_keys(request.keys)
    end_layer = request.first_layer + request.layer_count
    if request.layer_count == 0 or end_layer > layout.layer_count:
        refuse(
            Reason.FIELD_INVALID,
            f"layers {request.first_layer} to {end_layer} are no range of a layout of "
            f"{layout.layer_count} layers",
        )
    check_bounds(request.deadline_ms, "deadline_ms", least=1, most=DEADLINE_MS_MAX)
    if int(request.order) not in set(map(int, Order)):
        refuse(Reason.FIELD_INVALID, f"order is {request.order}")
    end = request.board_offset + board_bytes(
        chunk_count=len(request.keys),
        layer_count=request.layer_count,
        has_lengths=layout.is_encoded,
    )
    if request.board_offset % WORD_BYTES or end > arena_bytes:
        refuse(Reason.ARENA_RANGE, f"the board ends at byte {end} of {arena_bytes}")
    return end


def check_append(request: store_pb2.AppendRequest, layout: StateLayout, *, arena_bytes: int) -> int:
    """The end of the snapshot of an append; refuses one that cannot be."""
    count = len(request.items)
    check_bounds(count, "the count of items", least=1, most=max(count, 1))
    if count > ITEMS_PER_APPEND_MAX:
        refuse(Reason.LIMIT_EXCEEDED, f"the append has {count} items of {ITEMS_PER_APPEND_MAX}")
    check_bounds(request.row_count, "row_count", least=1, most=ROWS_PER_APPEND_MAX)
    check_bounds(request.deadline_ms, "deadline_ms", least=0, most=DEADLINE_MS_MAX)
    if len({item.sequence for item in request.items}) < count:
        refuse(Reason.FIELD_INVALID, "the append names a sequence twice; join its items")
    for item in request.items:
        _check_item(item, request.row_count, layout)
    try:
        end = request.snapshot_offset + SnapshotGeometry(layout, request.row_count).byte_count
    except LayoutError as error:
        refuse(Reason.LAYOUT_INVALID, str(error))
    if end > arena_bytes:
        refuse(Reason.ARENA_RANGE, f"the snapshot ends at byte {end} of {arena_bytes}")
    return end


def _check_item(item: store_pb2.AppendItem, row_count: int, layout: StateLayout) -> None:
    check_name(item.sequence, "sequence")
    check_bounds(item.token_count, "token_count", least=1, most=row_count)
    if item.first_row + item.token_count > row_count:
        refuse(Reason.FIELD_INVALID, f"the item has rows behind the {row_count} of its snapshot")
    check_bounds(item.first_token, "first_token", least=0, most=TOKENS_MAX)
    end_token = item.first_token + item.token_count
    completed = end_token // layout.chunk_tokens - item.first_token // layout.chunk_tokens
    if len(item.keys) != completed:
        refuse(
            Reason.FIELD_INVALID,
            f"tokens {item.first_token} to {end_token} complete {completed} chunks but come with "
            f"{len(item.keys)} keys",
        )
    if item.keys:
        check_keys(item.keys)


def check_hint(request: sequence_pb2.HintRequest) -> None:
    """Refuses a change of a queue that cannot be."""
    if max(len(request.entered), len(request.left)) > WAITING_PER_SESSION_MAX:
        refuse(Reason.LIMIT_EXCEEDED, f"at most {WAITING_PER_SESSION_MAX} requests wait")
    keys = [key for entry in request.entered for key in entry.keys]
    if keys:
        check_keys(keys)
    version = check_bounds(request.version, "version", least=1, most=VERSION_MAX)
    check_bounds(request.previous_version, "previous_version", least=0, most=version - 1)
    for entry in request.entered:
        check_name(entry.name)
        check_bounds(entry.place, "place", least=0, most=PLACE_MAX)
    for name in request.left:
        check_name(name, "left")


def check_halves(layout: StateLayout) -> None:
    """Refuses to cut chunks that have no rows."""
    odd = any(layer.kind is StateKind.KV and layer.token_bytes % 2 for layer in layout.layers)
    if layout.is_encoded or odd:
        refuse(Reason.LAYOUT_INVALID, "chunks of this layout cannot be cut")
