"""What a reader does next, and how its stretches of pieces are cut into spans."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.reading.read_policy import SPANS_IN_FLIGHT, ReadPolicy, Step

STRETCHES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), max_size=4).map(
    lambda pairs: [range(first, first + count) for first, count in pairs]
)


def policy_of(
    *stretches: range,
    span_chunks: int = 4,
    first_chunks: Callable[[int], int] | None = None,
    from_end: bool = False,
) -> ReadPolicy:
    return ReadPolicy(
        stretches, span_chunks=span_chunks, first_chunks=first_chunks, from_end=from_end
    )


def taken(policy: ReadPolicy) -> list[range]:
    spans = []
    while policy.next_span():
        spans.append(policy.take())
    return spans


@pytest.mark.parametrize(
    ("from_end", "spans"),
    [
        (False, [range(4), range(4, 8), range(8, 10), range(20, 21)]),
        (True, [range(6, 10), range(2, 6), range(2), range(20, 21)]),
    ],
)
def test_stretches_are_cut_one_after_the_other(from_end: bool, spans: Sequence[range]) -> None:
    policy = policy_of(range(10), range(5, 5), range(20, 21), from_end=from_end)
    assert taken(policy) == spans
    assert policy.next_span() == range(0)


def test_spans_grow_from_the_first_one() -> None:
    policy = policy_of(range(20), span_chunks=8, first_chunks=lambda count: count // 16)
    assert [len(span) for span in taken(policy)] == [1, 2, 4, 8, 5]


def test_a_first_span_is_no_longer_than_others() -> None:
    policy = policy_of(range(20), first_chunks=lambda count: count)
    assert policy.next_span() == range(4)


def test_what_was_refused_is_asked_for_by_halves() -> None:
    policy = policy_of(range(20))
    assert policy.refuse()
    assert policy.next_span() == range(2)
    assert policy.refuse()
    assert policy.next_span() == range(1)
    assert not policy.refuse()
    # There is more room when it is tried again.
    assert policy.next_span() == range(4)
    assert policy.refuse()
    assert policy.take() == range(2)
    assert policy.take() == range(2, 6)


def test_what_was_reached_is_not_read() -> None:
    policy = policy_of(range(3), range(6, 9), range(12, 14))
    policy.reach(7)
    assert policy.chunk_count == 4
    assert taken(policy) == [range(7, 9), range(12, 14)]


@pytest.mark.parametrize(
    ("from_end", "spans"),
    [(False, [range(3), range(3, 4)]), (True, [range(1, 4), range(1)])],
)
def test_all_pieces_come_once_for_each_band(from_end: bool, spans: Sequence[range]) -> None:
    bands = [range(2), range(2, 3)]
    policy = ReadPolicy([range(4)], span_chunks=3, from_end=from_end, bands=bands)
    found = []
    while policy.next_span():
        layers = policy.layers
        found.append((layers, policy.take()))
    assert found == [(band, span) for band in bands for span in spans]
    assert policy.layers is None


def test_what_was_reached_is_read_in_no_band() -> None:
    policy = ReadPolicy([range(4)], span_chunks=2, from_end=True, bands=[range(1), range(1, 2)])
    assert policy.take() == range(2, 4)
    policy.reach(2)
    assert policy.layers == range(1, 2)
    assert taken(policy) == [range(2, 4)]
    policy.reach(4)
    assert policy.layers is None


@pytest.mark.parametrize(
    ("in_flight", "lacks_reads", "is_nearly_over", "step"),
    [
        (1, True, False, Step.AWAIT_READ),
        (1, False, False, Step.AWAIT_READ),
        (1, True, True, Step.START),
        (SPANS_IN_FLIGHT, True, True, Step.START),
        (0, False, True, Step.OPEN),
        (1, False, True, Step.OPEN),
        (SPANS_IN_FLIGHT, False, True, Step.AWAIT_SPAN),
    ],
)
def test_one_read_after_the_other_in_two_spans(
    in_flight: int, lacks_reads: bool, is_nearly_over: bool, step: Step
) -> None:
    policy = policy_of(range(9))
    assert (
        policy.step(
            in_flight=in_flight, newest_lacks_reads=lacks_reads, is_nearly_over=is_nearly_over
        )
        is step
    )


def test_it_ends_when_all_is_asked_for() -> None:
    policy = policy_of(range(2))
    policy.take()
    assert policy.step(in_flight=1, newest_lacks_reads=True, is_nearly_over=True) is Step.START
    for is_nearly_over in (False, True):
        assert (
            policy.step(in_flight=1, newest_lacks_reads=False, is_nearly_over=is_nearly_over)
            is Step.END
        )


@given(
    stretches=STRETCHES,
    span_chunks=st.integers(1, 9),
    from_end=st.booleans(),
    reached=st.integers(0, 50),
)
def test_every_piece_that_was_not_reached_is_read_once(
    stretches: list[range], span_chunks: int, from_end: bool, reached: int
) -> None:
    policy = policy_of(*stretches, span_chunks=span_chunks, from_end=from_end)
    policy.reach(reached)
    spans = taken(policy)
    assert all(0 < len(span) <= span_chunks for span in spans)
    wanted = [chunk for stretch in stretches for chunk in stretch if chunk >= reached]
    assert sorted(chunk for span in spans for chunk in span) == sorted(wanted)
