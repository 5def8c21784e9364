import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored_contract.keys import chunk_key, independent_key, prefix_keys, token_bytes
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.limits import KEY_BYTES

LAYOUT = StateLayout(
    model="m", dtype="float32", layers=(LayerState(StateKind.KV, 8),), chunk_tokens=4
)
LAYOUT_ID = LAYOUT.layout_id
tokens = st.lists(st.integers(0, 2**32 - 1), max_size=30)


def hashed(*fields: bytes) -> bytes:
    data = b"".join(struct.pack("<Q", len(field)) + field for field in fields)
    return hashlib.sha256(data).digest()


def test_tokens_are_little_endian_words() -> None:
    assert token_bytes([1, 2**32 - 1]) == b"\x01\0\0\0\xff\xff\xff\xff"


@pytest.mark.parametrize("token_id", [-1, 2**32])
def test_tokens_that_are_no_words_are_refused(token_id: int) -> None:
    with pytest.raises(OverflowError):
        token_bytes([token_id])


def test_keys_are_what_the_documentation_says() -> None:
    """Clients in other languages and stores of earlier releases depend on these bytes."""
    words = struct.pack("<3I", 7, 8, 9)
    key = chunk_key(namespace="ü", layout_id=LAYOUT_ID, parent=b"p" * 32, token_ids=[7, 8, 9])
    assert key == hashed(b"kvstored.prefix.1", "ü".encode(), LAYOUT_ID, b"p" * 32, words)
    key = independent_key(namespace="ü", layout_id=LAYOUT_ID, token_ids=[7, 8, 9])
    assert key == hashed(b"kvstored.independent.1", "ü".encode(), LAYOUT_ID, words)
    assert len(key) == KEY_BYTES


def test_every_part_changes_the_key() -> None:
    def key(
        namespace: str = "a",
        layout_id: bytes = LAYOUT_ID,
        parent: bytes = b"",
        token_ids: tuple[int, ...] = (1, 2),
    ) -> bytes:
        return chunk_key(
            namespace=namespace, layout_id=layout_id, parent=parent, token_ids=token_ids
        )

    keys = {
        key(),
        key(namespace="b"),
        key(layout_id=b"l" * 32),
        key(parent=b"p" * 32),
        key(token_ids=(1, 3)),
        key(token_ids=(2, 1)),
        key(token_ids=(1, 2, 0)),
        independent_key(namespace="a", layout_id=LAYOUT_ID, token_ids=(1, 2)),
    }
    assert len(keys) == 8


@given(tokens)
def test_each_complete_chunk_has_a_key_chained_to_the_one_before(token_ids: list[int]) -> None:
    keys = prefix_keys(namespace="a", layout=LAYOUT, token_ids=token_ids)
    assert len(keys) == len(token_ids) // LAYOUT.chunk_tokens
    parent = b""
    for index, key in enumerate(keys):
        chunk = token_ids[4 * index : 4 * index + 4]
        assert key == chunk_key(namespace="a", layout_id=LAYOUT_ID, parent=parent, token_ids=chunk)
        parent = key


@given(tokens, st.integers(0, 7))
def test_keys_go_on_from_the_last_known_one(token_ids: list[int], known: int) -> None:
    keys = prefix_keys(namespace="a", layout=LAYOUT, token_ids=token_ids)
    known = min(known, len(keys))
    parent = keys[known - 1] if known else b""
    rest = token_ids[known * LAYOUT.chunk_tokens :]
    assert keys[known:] == prefix_keys(namespace="a", layout=LAYOUT, token_ids=rest, parent=parent)


@given(tokens, tokens, tokens)
def test_keys_are_shared_exactly_as_far_as_the_tokens_are(
    common: list[int], first: list[int], second: list[int]
) -> None:
    keys = [
        prefix_keys(namespace="a", layout=LAYOUT, token_ids=common + rest)
        for rest in (first, second)
    ]
    for start, (one, other) in enumerate(zip(*keys, strict=False)):
        end = 4 * (start + 1)
        assert (one == other) == ((common + first)[:end] == (common + second)[:end])
