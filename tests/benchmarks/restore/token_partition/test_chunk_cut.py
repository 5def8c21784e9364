import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.restore.token_partition.chunk_cut import ChunkCut, cuts_of
from engine_adapters.restore import TokenRange


@pytest.mark.parametrize(
    ("tokens", "cuts"),
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
def test_cuts_at_either_end(tokens: tuple[int, int], cuts: list[tuple[range, range]]) -> None:
    found = cuts_of(TokenRange(*tokens), 8)
    assert found == tuple(ChunkCut(*cut) for cut in cuts)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 17))
def test_every_token_once_and_in_order(first: int, count: int, chunk_tokens: int) -> None:
    cuts = cuts_of(TokenRange(first, first + count), chunk_tokens)
    tokens = [
        chunk * chunk_tokens + token for cut in cuts for chunk in cut.chunks for token in cut.tokens
    ]
    assert tokens == list(range(first, first + count))
    assert sum(cut.token_count for cut in cuts) == count
    assert len(cuts) <= 3
