from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.restore.ranges import History, TokenRange, true_ranges


def history(prompt_tokens: int, *is_stored: bool) -> History:
    return History(prompt_tokens=prompt_tokens, chunk_tokens=10, is_stored=is_stored)


@given(st.lists(st.booleans()))
def test_runs_hold_exactly_the_true_flags_and_do_not_touch(flags: list[bool]) -> None:
    found = true_ranges(flags)
    assert [index for chunks in found for index in chunks] == [
        i for i, flag in enumerate(flags) if flag
    ]
    assert all(before.stop < after.start for before, after in pairwise(found))


def test_the_last_token_of_the_prompt_is_never_in_a_chunk() -> None:
    assert history(30, True, True, True).tokens(range(1, 3)) == TokenRange(10, 29)
    assert history(30, True, True, True).token_count == 29
    assert history(31, True, True, True).token_count == 30
    assert TokenRange(10, 29).token_count == 19


def test_chunks_behind_a_position_begin_with_the_one_that_it_is_in() -> None:
    chunks = history(26, True, True, True)
    assert chunks.chunks_behind(0) == range(3)
    assert chunks.chunks_behind(9) == range(3)
    assert chunks.chunks_behind(10) == range(1, 3)
    assert chunks.chunks_behind(24) == range(2, 3)
    assert not chunks.chunks_behind(25)
    assert not chunks.chunks_behind(26)
    assert not history(26).chunks_behind(0)


def test_a_short_last_chunk_can_be_left_out() -> None:
    whole, short = history(31, True, False, True), history(30, True, False, True)
    assert whole.without_short_chunk() is whole
    assert short.without_short_chunk().is_stored == (True, False)
    assert history(5).without_short_chunk() == history(5)


@pytest.mark.parametrize(
    ("prompt_tokens", "chunk_tokens", "chunk_count", "message"),
    [
        (0, 10, 0, "at least one token"),
        (5, 0, 0, "at least one token"),
        (1, 10, 1, "of 1 tokens cannot use 1 chunks of 10"),
        (21, 10, 3, "of 21 tokens cannot use 3 chunks of 10"),
    ],
)
def test_refuses_what_cannot_be(
    prompt_tokens: int, chunk_tokens: int, chunk_count: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        History(
            prompt_tokens=prompt_tokens,
            chunk_tokens=chunk_tokens,
            is_stored=(True,) * chunk_count,
        )


def test_stored_ranges_are_those_of_the_flags() -> None:
    assert history(60, True, False, True, True).stored_ranges() == (range(1), range(2, 4))
