import pytest

from tests.tidy.shrinking import faults, strays


def test_more_than_the_list_allows_is_a_fault() -> None:
    assert faults({"a": 4, "b": 2}, {"a": 3}, limit=1) == [
        "a has 4: at most 3",
        "b has 2: at most 1",
    ]


@pytest.mark.parametrize("found", [{}, {"a": 1}])
def test_an_exception_that_is_not_needed_is_a_fault(found: dict[str, int]) -> None:
    assert len(faults(found, {"a": 3}, limit=1)) == 1


def test_it_is_said_by_how_much_a_count_may_be_lowered() -> None:
    with pytest.warns(UserWarning, match="lower 3 to 2"):
        assert faults({"a": 2}, {"a": 3}) == []


def test_names_break_the_rule_or_the_list() -> None:
    assert strays({"a", "b"}, {"b"}) == ["a breaks the rule"]
    assert len(strays({"a"}, {"a", "b"})) == 1
