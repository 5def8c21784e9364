"""The order of use of many rows against a sorted list."""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kvstored.tiers.policy import use_order
from kvstored.tiers.policy.use_order import UseOrder
from tests.support.untraced import UNTRACED

SEGMENT = 16
UNUSED = 2**64 - 1


class Times:
    """Times and positions of rows."""

    def __init__(self, segment_count: int) -> None:
        self.arrays = [np.full(SEGMENT, UNUSED, np.uint64) for _ in range(segment_count)]
        self.places = [np.zeros(SEGMENT, np.uint16) for _ in range(segment_count)]
        self.version = 0
        self.pause: Callable[[], None] = lambda: None

    def segments(self, step: int = 1) -> Iterator[NDArray[np.uint64]]:
        return (times[::step] for times in self.arrays)

    def positions(self, number: int, indices: NDArray[np.int64]) -> NDArray[np.uint16]:
        return self.places[number][indices]

    def of(self, row: int) -> int:
        return int(self.arrays[row // SEGMENT][row % SEGMENT])


class Rows:
    """Rows of three groups by their number."""

    def __init__(self, segment_count: int = 4) -> None:
        self.times = Times(segment_count)
        self.clock = 1
        self.looks = 0

    def row_count(self, group: int | None) -> int:
        return len(self.expected(group))

    def is_of_class(
        self, segment: int, indices: NDArray[np.int64], group: int | None
    ) -> NDArray[np.bool_]:
        self.looks += 1
        if group is None:
            return np.ones(len(indices), np.bool_)
        return (indices + segment * SEGMENT) % 3 == group

    def use(self, row: int) -> None:
        self.use_together([row])

    def use_together(self, rows: Sequence[int]) -> None:
        for position, row in enumerate(rows):
            self.times.arrays[row // SEGMENT][row % SEGMENT] = self.clock
            self.times.places[row // SEGMENT][row % SEGMENT] = position
        self.clock += 1

    def remove(self, row: int) -> None:
        self.times.arrays[row // SEGMENT][row % SEGMENT] = UNUSED

    def expected(self, group: int | None) -> list[int]:
        times = np.concatenate(self.times.arrays)
        places = np.concatenate(self.times.places).astype(int)
        order = sorted(range(len(times)), key=lambda row: (int(times[row]), -places[row]))
        rows = [row for row in order if times[row] != UNUSED]
        return [row for row in rows if group is None or row % 3 == group]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["use", "use", "together", "remove", "look"]),
        st.integers(0, 4 * SEGMENT - 1),
    ),
    max_size=150,
)


@pytest.mark.parametrize(("queue_rows", "sample_step"), [(1000, 64), (6, 2), (2, 2), (8, 1)])
@given(steps=STEPS)
@settings(max_examples=60)
def test_victims_are_always_the_oldest(
    queue_rows: int, sample_step: int, steps: list[tuple[str, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(use_order, "QUEUE_ROWS", queue_rows)
        patch.setattr(use_order, "SAMPLE_STEP", sample_step)
        rows = Rows()
        order = UseOrder(rows)
        for step, row in steps:
            if step == "use":
                rows.use(row)
            elif step == "together":
                rows.use_together([(row + 7 * number) % (4 * SEGMENT) for number in range(4)])
            elif step == "remove":
                rows.remove(row)
            else:
                group = None if row % 4 == 3 else row % 4
                count = row % 7
                found = list(islice(order.victims(group), count))
                assert found == rows.expected(group)[:count]
        for group in (None, 0, 1, 2):
            assert list(order.victims(group)) == rows.expected(group)


def test_rows_that_were_used_or_removed_since_they_were_sorted_are_passed_over() -> None:
    rows = Rows()
    order = UseOrder(rows)
    for row in range(6):
        rows.use(row)
    assert next(order.victims()) == 0
    rows.use(1)
    rows.remove(2)
    rows.use(0)
    assert list(order.victims()) == [3, 4, 5, 1, 0]
    rows.remove(4)
    rows.use(4)
    assert list(order.victims()) == [3, 5, 1, 0, 4]


def test_a_use_whose_row_is_gone_since_is_no_victim() -> None:
    """All that was used after the last look was also removed: there is nothing to add."""
    rows = Rows()
    order = UseOrder(rows)
    for row in range(4):
        rows.use(row)
    assert list(order.victims()) == [0, 1, 2, 3]
    rows.use(0)
    rows.remove(0)
    assert list(order.victims()) == [1, 2, 3]


def test_a_group_larger_than_a_queue_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use_order, "QUEUE_ROWS", 4)
    monkeypatch.setattr(use_order, "SAMPLE_STEP", 2)
    rows = Rows()
    for row in reversed(range(4 * SEGMENT)):
        rows.use(row)
    order = UseOrder(rows)
    assert next(order.victims(1)) == rows.expected(1)[0]
    assert len(order._queues[1].ahead) < rows.row_count(1) / 2
    assert list(order.victims(1)) == rows.expected(1)


def test_nobody_looks_for_a_group_without_rows() -> None:
    rows = Rows()
    rows.use(0)
    assert list(UseOrder(rows).victims(1)) == []
    assert rows.looks == 0


def test_rows_that_are_passed_over_cost_no_new_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head may be pinned for long while thousands behind it are evicted."""
    monkeypatch.setattr(use_order, "QUEUE_ROWS", 16)
    monkeypatch.setattr(use_order, "SAMPLE_STEP", 4)
    rows = Rows(segment_count=64)
    order = UseOrder(rows)
    for row in range(64 * SEGMENT):
        rows.use(row)
    for _ in range(300):
        head, second = islice(order.victims(), 2)
        assert head == 0
        rows.remove(second)
        assert len(order._queues[None].passed) <= 2


def test_times_that_are_no_uses_are_sorted_again() -> None:
    """A row that got an old time would stay out of what was sorted for ever."""
    rows = Rows()
    order = UseOrder(rows)
    for row in range(6):
        rows.use(row)
    assert list(order.victims()) == list(range(6))
    rows.times.arrays[0][5] = rows.times.of(1)
    rows.times.places[0][5] = 1
    rows.times.version += 1
    assert list(order.victims()) == [0, 5, 1, 2, 3, 4]


CHANGES = st.lists(
    st.tuples(st.sampled_from(["use", "together", "remove"]), st.integers(0, 4 * SEGMENT - 1)),
    max_size=40,
)


@UNTRACED
@pytest.mark.parametrize(("queue_rows", "sample_step"), [(1000, 64), (6, 2), (8, 1)])
@given(before=CHANGES, meanwhile=CHANGES)
@settings(max_examples=60)
def test_what_others_do_in_its_pauses_leaves_the_order_right(
    queue_rows: int,
    sample_step: int,
    before: list[tuple[str, int]],
    meanwhile: list[tuple[str, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(use_order, "QUEUE_ROWS", queue_rows)
        patch.setattr(use_order, "SAMPLE_STEP", sample_step)
        patch.setattr(use_order, "ROWS_AT_ONCE", SEGMENT)
        rows = Rows()
        order = UseOrder(rows)
        for row in range(4 * SEGMENT):
            rows.use(row)
        change(rows, before)
        changes = iter(meanwhile)
        rows.times.pause = lambda: change(rows, list(islice(changes, 1)))
        for row in order.victims(1):
            # What is handed out after a pause is in use then.
            assert rows.times.of(row) != UNUSED
        rows.times.pause = lambda: None
        for group in (1, None):
            assert list(order.victims(group)) == rows.expected(group)


def change(rows: Rows, steps: list[tuple[str, int]]) -> None:
    for step, row in steps:
        if step == "use":
            rows.use(row)
        elif step == "together":
            rows.use_together([(row + 7 * number) % (4 * SEGMENT) for number in range(4)])
        else:
            rows.remove(row)


def test_others_have_a_turn_after_some_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(use_order, "ROWS_AT_ONCE", 2 * SEGMENT)
    rows = Rows(segment_count=7)
    for row in range(7 * SEGMENT):
        rows.use(row)
    pauses: list[int] = []
    rows.times.pause = lambda: pauses.append(rows.looks)
    assert len(list(UseOrder(rows).victims())) == 7 * SEGMENT
    assert pauses == [2, 4, 6]
