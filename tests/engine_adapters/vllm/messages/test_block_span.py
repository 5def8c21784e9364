import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.vllm.messages.block_span import (
    BlockCopy,
    BlockSpan,
    claimed_chunks,
    usable_tokens,
)


@pytest.mark.parametrize(
    ("stored", "request_tokens", "usable"),
    [(0, 100, 0), (64, 100, 64), (64, 65, 64), (64, 64, 48), (128, 70, 64), (128, 1, 0)],
)
def test_last_token_is_never_loaded(stored: int, request_tokens: int, usable: int) -> None:
    assert (
        usable_tokens(stored_tokens=stored, request_tokens=request_tokens, block_tokens=16)
        == usable
    )


@given(first=st.integers(0, 20), count=st.integers(1, 40), chunk_blocks=st.integers(1, 8))
def test_chunks_hold_every_block_once(first: int, count: int, chunk_blocks: int) -> None:
    ids = tuple(range(1000, 1000 + count))
    span = BlockSpan(first_block=first, block_ids=ids, chunk_blocks=chunk_blocks)
    copies = [span.copy_of(chunk) for chunk in span.chunks]
    assert tuple(one for copy in copies for one in copy.block_ids) == ids
    assert all(len(copy.block_ids) == copy.block_count > 0 for copy in copies)
    assert list(span.ids_of(span.chunks)) == list(ids)


def test_span_within_chunks() -> None:
    span = BlockSpan(first_block=3, block_ids=(7, 8, 9), chunk_blocks=4)
    assert span.chunks == range(2)
    assert span.copy_of(0) == BlockCopy(0, 3, 4, (7,))
    assert span.copy_of(1) == BlockCopy(1, 0, 2, (8, 9))


def test_chunk_that_computing_touches_is_claimed() -> None:
    claims = [claimed_chunks(computed_tokens=count, chunk_tokens=64) for count in (0, 1, 64, 65)]
    assert claims == [0, 1, 1, 2]
