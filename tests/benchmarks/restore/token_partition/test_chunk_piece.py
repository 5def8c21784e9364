import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.restore.token_partition.chunk_piece import ChunkPiece, pieces_of
from engine_adapters.restore import TokenRange


@pytest.mark.parametrize(
    ("tokens", "pieces"),
    [
        ((8, 24), [(range(1, 3), range(8))]),
        ((3, 24), [(range(1), range(3, 8)), (range(1, 3), range(8))]),
        ((8, 19), [(range(1, 2), range(8)), (range(2, 3), range(3))]),
        (
            (13, 27),
            [(range(1, 2), range(5, 8)), (range(2, 3), range(8)), (range(3, 4), range(3))],
        ),
        ((10, 13), [(range(1, 2), range(2, 5))]),
        ((5, 5), []),
    ],
)
def test_cuts_at_either_end(tokens: tuple[int, int], pieces: list[tuple[range, range]]) -> None:
    found = pieces_of(TokenRange(*tokens), 8)
    assert found == tuple(ChunkPiece(*piece) for piece in pieces)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 17))
def test_every_token_once_and_in_order(first: int, count: int, chunk_tokens: int) -> None:
    pieces = pieces_of(TokenRange(first, first + count), chunk_tokens)
    tokens = [
        chunk * chunk_tokens + token
        for piece in pieces
        for chunk in piece.chunks
        for token in piece.tokens
    ]
    assert tokens == list(range(first, first + count))
    assert sum(piece.token_count for piece in pieces) == count
    assert len(pieces) <= 3
