import pytest

from engine_adapters.restore.recent import (
    DOUBT_LEAST,
    DOUBT_MOST,
    NO_DOUBT,
    SURPRISES_REMEMBERED,
    Doubt,
)


def test_it_begins_with_what_is_expected_and_forgets_it() -> None:
    doubt = Doubt(3.0)
    for _ in range(SURPRISES_REMEMBERED - 1):
        doubt.add(0.5)
        assert doubt.value == 3.0
    doubt.add(0.5)
    assert doubt.value == DOUBT_LEAST


def test_the_worst_that_was_seen_lately_counts() -> None:
    doubt = Doubt(2.0)
    for surprise in (1.0, 2.5, 1.1, 1.0):
        doubt.add(surprise)
    assert doubt.value == 2.5
    doubt.add(100.0)
    assert doubt.value == DOUBT_MOST


def test_what_is_known_exactly_is_not_doubted_until_it_is_seen_to_be_wrong() -> None:
    doubt = Doubt(NO_DOUBT)
    assert doubt.value == NO_DOUBT
    doubt.add(1.25)
    assert doubt.value == 1.25


@pytest.mark.parametrize("expected", [0.99, float("nan")])
def test_less_than_no_doubt_is_refused(expected: float) -> None:
    with pytest.raises(ValueError, match=f"a doubt is at least 1.0, not {expected}"):
        Doubt(expected)
