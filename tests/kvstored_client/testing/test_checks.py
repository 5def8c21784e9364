"""What the store in memory refuses, branch by branch; conformance compares it with the daemon."""

from collections.abc import Callable
from typing import Any

import pytest

from kvstored_client.testing.checks import (
    TOKENS_MAX,
    check_append,
    check_bounds,
    check_halves,
    check_hint,
    check_keys,
    check_name,
    check_put,
    check_read,
)
from kvstored_client.testing.refusal import RefusedError
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.limits import (
    CHUNKS_PER_CALL_MAX,
    DEADLINE_MS_MAX,
    ITEMS_PER_APPEND_MAX,
    NOTE_BYTES_MAX,
    NOTES_BYTES_PER_CALL_MAX,
    ROWS_PER_APPEND_MAX,
    SEQUENCE_NAME_BYTES_MAX,
    SLICE_LENGTHS_PER_CALL_MAX,
    WAITING_PER_SESSION_MAX,
)
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import sequence_pb2, store_pb2

KEY = bytes(32)
TOKENS = 16
LAYERS = (LayerState(StateKind.KV, 64), LayerState(StateKind.NONE, 0))
RAW = StateLayout(model="m", dtype="f", layers=LAYERS, chunk_tokens=TOKENS)
ENCODED = StateLayout(model="m", dtype="f", layers=LAYERS, chunk_tokens=TOKENS, codec="zstd")
ARENA_BYTES = 1 << 20


def refused(reason: Reason, call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
    with pytest.raises(RefusedError) as caught:
        call(*arguments, **named)
    assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ([], Reason.FIELD_INVALID),
        ([KEY] * (CHUNKS_PER_CALL_MAX + 1), Reason.LIMIT_EXCEEDED),
        ([KEY, KEY[1:]], Reason.FIELD_INVALID),
    ],
)
def test_keys(keys: list[bytes], reason: Reason) -> None:
    refused(reason, check_keys, keys)


def hint_of(**fields: Any) -> sequence_pb2.HintRequest:
    plain: dict[str, Any] = {"version": 2, "previous_version": 1}
    return sequence_pb2.HintRequest(**(plain | fields))


def entry_of(**fields: Any) -> sequence_pb2.QueueEntry:
    plain: dict[str, Any] = {"name": "a", "place": 1}
    return sequence_pb2.QueueEntry(**(plain | fields))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"left": ["a"] * (WAITING_PER_SESSION_MAX + 1)}, Reason.LIMIT_EXCEEDED),
        ({"entered": [entry_of(keys=[KEY[1:]])]}, Reason.FIELD_INVALID),
        ({"entered": [entry_of(name="")]}, Reason.FIELD_INVALID),
        ({"left": [""]}, Reason.FIELD_INVALID),
        ({"version": 0}, Reason.FIELD_INVALID),
        ({"previous_version": 2}, Reason.FIELD_INVALID),
    ],
)
def test_hints(fields: dict[str, Any], reason: Reason) -> None:
    refused(reason, check_hint, hint_of(**fields))
    check_hint(hint_of(entered=[entry_of(), entry_of(keys=[KEY])], left=["b"]))


def test_bounds_are_inclusive() -> None:
    assert [check_bounds(value, "it", least=1, most=3) for value in (1, 3)] == [1, 3]
    for value in (0, 4):
        refused(Reason.FIELD_INVALID, check_bounds, value, "it", least=1, most=3)


def test_names() -> None:
    longest = "n" * SEQUENCE_NAME_BYTES_MAX
    assert check_name(longest) == longest
    for name in ("", longest + "n"):
        refused(Reason.FIELD_INVALID, check_name, name)


def put_of(chunk_count: int = 1, **fields: Any) -> store_pb2.PutRequest:
    chunk: dict[str, Any] = {"key": KEY, "token_count": TOKENS} | fields.pop("chunk", {})
    chunks = [store_pb2.PutChunk(**chunk) for _ in range(chunk_count)]
    usual: dict[str, Any] = {"ack": store_pb2.ACK_STAGED, "chunks": chunks}
    return store_pb2.PutRequest(**(usual | fields))


@pytest.mark.parametrize(
    ("layout", "lengths"), [(RAW, []), (ENCODED, [1, 0]), (ENCODED, [TOKENS * 64, 0])]
)
def test_a_put_that_is_taken(layout: StateLayout, lengths: list[int]) -> None:
    check_put(put_of(chunk={"slice_bytes": lengths, "parent_key": KEY}), layout)


NOTES = NOTES_BYTES_PER_CALL_MAX // NOTE_BYTES_MAX + 1


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (put_of(ack=store_pb2.ACK_UNSPECIFIED), Reason.FIELD_INVALID),
        (put_of(0), Reason.FIELD_INVALID),
        (
            put_of(chunk={"slice_bytes": [0] * (SLICE_LENGTHS_PER_CALL_MAX + 1)}),
            Reason.LIMIT_EXCEEDED,
        ),
        (put_of(chunk={"note": bytes(NOTE_BYTES_MAX + 1)}), Reason.LIMIT_EXCEEDED),
        (put_of(NOTES, chunk={"note": bytes(NOTE_BYTES_MAX)}), Reason.LIMIT_EXCEEDED),
        (put_of(chunk={"parent_key": KEY[1:]}), Reason.FIELD_INVALID),
        (put_of(chunk={"token_count": TOKENS + 1}), Reason.FIELD_INVALID),
        (put_of(chunk={"slice_bytes": [1]}), Reason.FIELD_INVALID),
        (put_of(deadline_ms=DEADLINE_MS_MAX + 1), Reason.FIELD_INVALID),
    ],
)
def test_a_put_that_is_refused(request_: store_pb2.PutRequest, reason: Reason) -> None:
    refused(reason, check_put, request_, RAW)


@pytest.mark.parametrize("lengths", [[], [1], [0, 0], [1, 1], [TOKENS * 64 + 1, 0]])
def test_lengths_that_a_layout_with_a_codec_does_not_allow(lengths: list[int]) -> None:
    refused(Reason.FIELD_INVALID, check_put, put_of(chunk={"slice_bytes": lengths}), ENCODED)


def read_of(**fields: Any) -> store_pb2.ReadRequest:
    usual: dict[str, Any] = {
        "keys": [KEY],
        "layer_count": 2,
        "deadline_ms": 1,
        "order": store_pb2.ORDER_LAYER_FIRST,
    }
    return store_pb2.ReadRequest(**(usual | fields))


def test_a_read_that_is_taken_says_where_its_board_ends() -> None:
    end = check_read(read_of(board_offset=64), RAW, arena_bytes=ARENA_BYTES)
    assert 64 < end < ARENA_BYTES
    assert check_read(read_of(board_offset=64), RAW, arena_bytes=end) == end


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"layer_count": 0}, Reason.FIELD_INVALID),
        ({"first_layer": 1}, Reason.FIELD_INVALID),
        ({"deadline_ms": 0}, Reason.FIELD_INVALID),
        ({"order": 99}, Reason.FIELD_INVALID),
        ({"board_offset": 1}, Reason.ARENA_RANGE),
        ({"board_offset": ARENA_BYTES}, Reason.ARENA_RANGE),
    ],
)
def test_a_read_that_is_refused(fields: dict[str, Any], reason: Reason) -> None:
    refused(reason, check_read, read_of(**fields), RAW, arena_bytes=ARENA_BYTES)


def item_of(name: str = "s", **fields: Any) -> store_pb2.AppendItem:
    usual: dict[str, Any] = {"sequence": name, "token_count": 1}
    return store_pb2.AppendItem(**(usual | fields))


def append_of(*items: store_pb2.AppendItem, **fields: Any) -> store_pb2.AppendRequest:
    usual: dict[str, Any] = {"row_count": 4, "items": items}
    return store_pb2.AppendRequest(**(usual | fields))


def test_an_append_that_is_taken_says_where_its_snapshot_ends() -> None:
    open_tail, complete = item_of("a"), item_of("b", first_token=TOKENS - 1, keys=[KEY])
    end = check_append(append_of(open_tail, complete), RAW, arena_bytes=ARENA_BYTES)
    assert check_append(append_of(open_tail, complete), RAW, arena_bytes=end) == end
    refused(
        Reason.ARENA_RANGE,
        check_append,
        append_of(open_tail, complete),
        RAW,
        arena_bytes=end - 1,
    )


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (append_of(), Reason.FIELD_INVALID),
        (
            append_of(*(item_of(f"{number}") for number in range(ITEMS_PER_APPEND_MAX + 1))),
            Reason.LIMIT_EXCEEDED,
        ),
        (append_of(item_of(), row_count=0), Reason.FIELD_INVALID),
        (append_of(item_of(), row_count=ROWS_PER_APPEND_MAX + 1), Reason.FIELD_INVALID),
        (append_of(item_of(), deadline_ms=DEADLINE_MS_MAX + 1), Reason.FIELD_INVALID),
        (append_of(item_of(), item_of()), Reason.FIELD_INVALID),
        (append_of(item_of("")), Reason.FIELD_INVALID),
        (append_of(item_of(token_count=5)), Reason.FIELD_INVALID),
        (append_of(item_of(first_row=4)), Reason.FIELD_INVALID),
        (append_of(item_of(first_token=TOKENS_MAX + 1)), Reason.FIELD_INVALID),
        (append_of(item_of(keys=[KEY])), Reason.FIELD_INVALID),
        (append_of(item_of(first_token=TOKENS - 1, keys=[KEY[1:]])), Reason.FIELD_INVALID),
    ],
)
def test_an_append_that_is_refused(request_: store_pb2.AppendRequest, reason: Reason) -> None:
    refused(reason, check_append, request_, RAW, arena_bytes=ARENA_BYTES)


def test_a_snapshot_of_states_that_have_no_rows_is_refused() -> None:
    refused(
        Reason.LAYOUT_INVALID, check_append, append_of(item_of()), ENCODED, arena_bytes=ARENA_BYTES
    )


def test_chunks_are_cut_where_they_have_rows() -> None:
    odd = StateLayout(
        model="m", dtype="f", layers=(LayerState(StateKind.KV, 63),), chunk_tokens=TOKENS
    )
    check_halves(RAW)
    for layout in (odd, ENCODED):
        refused(Reason.LAYOUT_INVALID, check_halves, layout)
