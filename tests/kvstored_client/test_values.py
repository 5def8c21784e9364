"""Values that no daemon accepts are refused where they are made."""

from typing import Any

import pytest

from kvstored_client.values import AppendItem, NewChunk, QueueEntry
from kvstored_contract.limits import (
    CHUNK_TOKENS_MAX,
    NOTE_BYTES_MAX,
    PLACE_MAX,
    SEQUENCE_NAME_BYTES_MAX,
)

KEY = b"k" * 32
PLAIN_CHUNK: dict[str, Any] = {"key": KEY, "token_count": 16}
PLAIN_ITEM: dict[str, Any] = {"sequence": "a", "first_token": 0, "first_row": 0, "token_count": 3}
PLAIN_ENTRY: dict[str, Any] = {"name": "a", "place": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": b"short"}, "the key of a chunk has 5 bytes; it must have 32"),
        ({"parent_key": b"short"}, "the parent key of a chunk has 5 bytes"),
        ({"token_count": 0}, f"token_count is 0; it must be 1 to {CHUNK_TOKENS_MAX}"),
        ({"token_count": -1}, "token_count is -1"),
        ({"token_count": CHUNK_TOKENS_MAX + 1}, f"token_count is {CHUNK_TOKENS_MAX + 1}"),
        ({"stripe": -1}, "stripe is -1; it must be 0 to"),
        ({"stripe": 2**64}, "stripe is 18446744073709551616"),
        ({"slice_bytes": (5, -1)}, "a slice has -1 bytes; a length must not be negative"),
        (
            {"note": bytes(NOTE_BYTES_MAX + 1)},
            f"the note of a chunk has {NOTE_BYTES_MAX + 1} bytes",
        ),
    ],
)
def test_a_chunk_that_cannot_be_was_refused_by_the_daemon_alone(
    change: dict[str, Any], message: str
) -> None:
    """Bug: it travelled, and the whole put came back as one error."""
    with pytest.raises(ValueError, match=message):
        NewChunk(**(PLAIN_CHUNK | change))


def test_chunks_at_the_limits_are_taken() -> None:
    NewChunk(
        key=KEY,
        token_count=CHUNK_TOKENS_MAX,
        parent_key=KEY,
        stripe=2**64 - 1,
        slice_bytes=(0, 7),
        note=bytes(NOTE_BYTES_MAX),
    )
    NewChunk(key=KEY, token_count=1, stripe=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sequence": ""}, "the name of a sequence has 0 bytes; it must have 1 to"),
        ({"sequence": "é" * SEQUENCE_NAME_BYTES_MAX}, f"has {2 * SEQUENCE_NAME_BYTES_MAX} bytes"),
        ({"first_token": -1}, "appends 3 tokens from token -1 and row 0"),
        ({"first_row": -1}, "row -1"),
        ({"token_count": 0}, "appends 0 tokens"),
        ({"keys": (KEY, b"short")}, "a key of an item has 5 bytes; it must have 32"),
    ],
)
def test_an_item_that_cannot_be_was_refused_by_the_daemon_alone(
    change: dict[str, Any], message: str
) -> None:
    """Bug: the append of all other sequences was refused with it."""
    with pytest.raises(ValueError, match=message):
        AppendItem(**(PLAIN_ITEM | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "the name of a sequence has 0 bytes"),
        ({"place": -1}, "a place is 0 to .*, not -1"),
        ({"place": PLACE_MAX + 1}, f"not {PLACE_MAX + 1}"),
        ({"keys": (KEY, b"short")}, "a key of an entry of the queue has 5 bytes"),
    ],
)
def test_an_entry_that_cannot_be_was_refused_by_the_daemon_alone(
    change: dict[str, Any], message: str
) -> None:
    """Bug: the whole change of the queue was refused with it."""
    with pytest.raises(ValueError, match=message):
        QueueEntry(**(PLAIN_ENTRY | change))


def test_entries_at_the_limits_are_taken() -> None:
    for place in (0, PLACE_MAX):
        QueueEntry(name="n" * SEQUENCE_NAME_BYTES_MAX, place=place, keys=(KEY,))


def test_items_at_the_limits_are_taken() -> None:
    name = "n" * SEQUENCE_NAME_BYTES_MAX
    AppendItem(sequence=name, first_token=2**40, first_row=0, token_count=1, keys=(KEY,))
