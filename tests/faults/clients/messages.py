"""Hypothesis strategies for messages of the contract: half sensible, half hostile.

Built from the descriptors, so a field that is added is attacked without a change here. A
message of wild values only would be refused by the first check; a sensible value for each
field by its name lets the others be reached.
"""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

from kvstored_contract.limits import DEADLINE_MS_MAX
from tests.faults.clients.raw_session import ARENA_BYTES
from tests.faults.clients.requests import CHUNK_BYTES, ENCODED, LAYOUT, hostile_key

KEYS = [hostile_key(number) for number in range(8)]
NAMES = ["a", "b", "c", "\0", "../x", "\u202e\uffff", "\n", "é" * 100]
PUT_DEADLINE_MS = 2000
WILD_LIST_ITEMS = 20_000
"""More than any list of a message may have, and far below the limit of a message."""
WILD_LIST_BYTES = 4 * 1024 * 1024

_EDGES = [
    0,
    1,
    4095,
    4096,
    ARENA_BYTES - 4096,
    ARENA_BYTES - 1,
    ARENA_BYTES,
    ARENA_BYTES + 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**63,
    2**64 - 4096,
    2**64 - 1,
]
_BITS = {
    FieldDescriptor.TYPE_UINT32: 32,
    FieldDescriptor.TYPE_UINT64: 64,
    FieldDescriptor.TYPE_FIXED64: 64,
}

_SENSIBLE: dict[str, st.SearchStrategy[Any]] = {
    "layout_id": st.sampled_from([LAYOUT.layout_id, LAYOUT.layout_id, ENCODED.layout_id]),
    "keys": st.lists(st.sampled_from(KEYS), min_size=1, max_size=4),
    "key": st.sampled_from(KEYS),
    "parent_key": st.sampled_from([b"", *KEYS]),
    "token_count": st.integers(1, LAYOUT.chunk_tokens),
    "stripe": st.integers(0, 3),
    "slice_bytes": st.just([]) | st.lists(st.integers(0, 4096), min_size=4, max_size=4),
    "ack": st.sampled_from([1, 2]),
    "deadline_ms": st.integers(1, PUT_DEADLINE_MS),
    "order": st.sampled_from([1, 2, 3]),
    "first_layer": st.integers(0, 1),
    "layer_count": st.integers(1, 3),
    "base": st.sampled_from([0, 64, 4096, 65536, ARENA_BYTES - CHUNK_BYTES, ARENA_BYTES - 64]),
    "layer_stride": st.sampled_from([0, 4096, 64]),
    "chunk_stride": st.sampled_from([0, 16384, 1]),
    "block_offsets": st.just([]) | st.lists(st.integers(0, 65536), max_size=8),
    "board_offset": st.sampled_from(
        [0, 8, ARENA_BYTES // 2, ARENA_BYTES - 4096, ARENA_BYTES - 72, ARENA_BYTES - 8]
    ),
    "window_bytes": st.sampled_from([0, 1, 4096, 1 << 30]),
    "lease_ms": st.integers(0, 2000),
    "lease_id": st.integers(1, 64),
    "name": st.sampled_from(NAMES),
    "new_name": st.sampled_from(NAMES),
    "expected_chunks": st.integers(0, 4),
    "expected_tokens": st.integers(0, 70),
    "tail_key": st.sampled_from([b"", *KEYS]),
    "drop_tokens": st.integers(0, 70),
    "sequence": st.sampled_from(NAMES),
    "first_token": st.sampled_from([0, 1, 63, 64]),
    "first_row": st.integers(0, 3),
    "row_count": st.integers(1, 70),
    "snapshot_offset": st.sampled_from([0, 64, 4096, ARENA_BYTES - 4096]),
    "ephemeral": st.booleans(),
    "keep_chunks": st.integers(0, 4),
    "drop_chunks": st.integers(0, 4),
    "limit": st.integers(1, 100),
    "key_prefix": st.just("") | st.text("0123456789abcdefABCDEFx", max_size=8),
    "model": st.sampled_from(["hostile", "m", ""]),
    "dtype": st.just("f"),
    "chunk_tokens": st.sampled_from([1, 64, 4096]),
    "kind": st.sampled_from([1, 2]),
    "token_bytes": st.sampled_from([1, 64, 4096]),
    "rotary": st.sampled_from([1, 2, 3]),
    "tensor_rank": st.just(0),
    "tensor_size": st.just(1),
    "pipeline_first_layer": st.just(0),
    "pipeline_layer_count": st.just(0),
    "codec": st.sampled_from(["", "zstd", "x" * 33, "No Codec"]),
}


def messages(kind: type[Message]) -> st.SearchStrategy[Message]:
    """Messages of one type."""

    @st.composite
    def build(draw: st.DrawFn) -> Message:
        wild_fields = draw(st.sampled_from([0.0, 0.2, 0.2, 1.0]))
        return _filled(draw, kind(), wild_fields)

    return build()


def _filled(draw: st.DrawFn, message: Message, wild_fields: float) -> Message:
    # Two classes of descriptors go by this name in the types of protobuf.
    fields: Any = message.DESCRIPTOR.fields
    for field in fields:
        is_wild = draw(st.floats(0, 1)) < wild_fields
        _set(draw, message, field, wild_fields, is_wild=is_wild)
    return message


def _set(
    draw: st.DrawFn, message: Message, field: Any, wild_fields: float, *, is_wild: bool
) -> None:
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        parts = [
            _filled(draw, GetMessageClass(field.message_type)(), wild_fields)
            for _ in range(draw(st.integers(0, 4)) if field.is_repeated else 1)
        ]
        if field.is_repeated:
            copies = draw(st.sampled_from([WILD_LIST_ITEMS, 300, 1])) if is_wild else 1
            getattr(message, field.name).extend(
                repeated(parts, copies, sum(part.ByteSize() for part in parts))
            )
        elif not is_wild:
            getattr(message, field.name).CopyFrom(parts[0])
        return
    if not is_wild and field.name in _SENSIBLE:
        value = draw(_SENSIBLE[field.name])
    elif field.is_repeated:
        items = draw(st.lists(_wild(field), max_size=4))
        item_bytes = sum(len(item) if isinstance(item, bytes | str) else 8 for item in items)
        value = repeated(items, draw(st.sampled_from([WILD_LIST_ITEMS, 1, 0])), item_bytes)
    else:
        value = draw(_wild(field))
    if field.is_repeated:
        getattr(message, field.name).extend(value)
    else:
        setattr(message, field.name, value)


def repeated(items: list[Any], copies: int, byte_count: int) -> list[Any]:
    """The items so many times, as long as the message stays below what gRPC takes."""
    return items * (copies if copies * byte_count <= WILD_LIST_BYTES else 1)


def _wild(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """Any value that the type of the field can hold, the edges above all."""
    if field.type in _BITS:
        most = 2 ** _BITS[field.type] - 1
        edges = [value for value in _EDGES if value <= most]
        numbers = st.sampled_from(edges) | st.integers(0, most)
        # The daemon keeps to a deadline of minutes, which is longer than the test waits.
        return numbers.filter(_is_soon_or_refused) if field.name == "deadline_ms" else numbers
    if field.type == FieldDescriptor.TYPE_ENUM:
        return st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 5)
    if field.type == FieldDescriptor.TYPE_BOOL:
        return st.booleans()
    if field.type == FieldDescriptor.TYPE_BYTES:
        of_a_key = st.binary(min_size=32, max_size=32)
        return st.binary(max_size=70) | of_a_key | st.just(b"k" * 100_000)
    if field.type == FieldDescriptor.TYPE_STRING:
        return st.text(max_size=40) | st.just("é" * 50_000) | st.sampled_from(NAMES)
    raise NotImplementedError(f"no values for the type of {field.full_name}")


def _is_soon_or_refused(deadline_ms: int) -> bool:
    return not PUT_DEADLINE_MS < deadline_ms <= DEADLINE_MS_MAX
