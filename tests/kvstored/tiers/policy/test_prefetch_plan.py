from collections.abc import Iterable

import pytest

from kvstored.tiers.policy.prefetch_plan import (
    WaitingSequence,
    Watermarks,
    plan_prefetch,
    window_length,
)


def waiting(chunks: str, chunk_bytes: int = 10) -> WaitingSequence[str]:
    return WaitingSequence(chunks=chunks, chunk_bytes=chunk_bytes)


def test_the_window_is_as_many_sequences_as_fit() -> None:
    assert window_length(100, 30) == 3
    assert window_length(10, 30) == 1
    with pytest.raises(ValueError, match="has bytes"):
        window_length(10, 0)


def groups(queue: Iterable[WaitingSequence[str]], resident: str, capacity_bytes: int) -> list[str]:
    plan = plan_prefetch(queue, resident, capacity_bytes=capacity_bytes)
    return ["".join(group) for group in plan]


def test_missing_chunks_are_fetched_in_the_order_of_the_queue() -> None:
    queue = [waiting("abc"), waiting("de"), waiting("f")]
    assert groups(queue, "bf", 60) == ["ac", "de"]
    assert groups(queue, "abcdef", 60) == []


def test_the_window_ends_where_the_capacity_does() -> None:
    """Also where what lies behind is smaller: it would displace what comes before it."""
    queue = [waiting("abc"), waiting("def", 20), waiting("g")]
    assert groups(queue, "", 80) == ["abc"]
    assert groups(queue, "abc", 90) == ["def"]


def test_a_head_that_is_larger_than_dram_left_the_plan_empty() -> None:
    """Bug: nothing at all was fetched while such a sequence was the first. Its front is, and
    nothing of what is behind it, even where that has smaller chunks."""
    queue = [waiting("abcdef", 20), waiting("g", 5)]
    assert groups(queue, "", 90) == ["abcd"]
    assert groups(queue, "ac", 90) == ["bd"]
    assert groups(queue, "abcd", 90) == []
    assert groups([waiting(""), *queue], "", 90) == ["abcd"]
    assert groups(queue, "", 19) == groups(queue, "", -1) == []


def test_the_queue_is_read_as_far_as_the_window() -> None:
    queue = iter([waiting("a"), waiting("b"), waiting("c")])
    assert groups(queue, "", 10) == ["a"]
    assert next(queue).chunks == "c"


def test_chunks_of_several_sequences_count_once() -> None:
    assert groups([waiting("ab"), waiting("abc")], "", 30) == ["ab", "c"]


def test_room_is_made_below_the_low_watermark_up_to_the_high_one() -> None:
    marks = Watermarks(low_bytes=10, high_bytes=30)
    assert [marks.bytes_to_free(free) for free in (0, 9, 10, 40)] == [30, 21, 0, 0]


@pytest.mark.parametrize(("low", "high"), [(-1, 5), (6, 5)])
def test_watermarks_are_in_order(low: int, high: int) -> None:
    with pytest.raises(ValueError, match="low watermark"):
        Watermarks(low_bytes=low, high_bytes=high)
