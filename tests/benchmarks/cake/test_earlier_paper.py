"""The earlier paper's sentences, and that our costs, which know nothing of it, come near them."""

import pytest

from benchmarks.cake.calibration import calibrated
from benchmarks.cake.earlier_paper import statements
from benchmarks.cake.statement import Statement

Statements = dict[str, Statement]


@pytest.fixture(scope="module")
def by_key() -> Statements:
    """No constant: every process that only collects tests would compute it."""
    return {statement.key: statement for statement in statements(calibrated())}


def test_a_range_has_two_ends_and_so_has_ours(by_key: Statements) -> None:
    assert len(by_key) == 16
    for statement in by_key.values():
        assert len(statement.ours) == len(statement.paper)
        assert list(statement.paper) == sorted(statement.paper)
        assert list(statement.ours) == sorted(statement.ours)


def test_a_whole_gpu_saves_of_loading_alone_what_the_paper_says(by_key: Statements) -> None:
    """Section 5.2; the two servers, three bandwidths and 32k tokens are in no calibrated cell."""
    for key in ("a100_saved_of_load", "h100_saved_of_load"):
        assert all(abs(points) < 1 for points in by_key[key].differences)
    for key in ("a100_saved_of_compute", "h100_saved_of_compute"):
        assert all(abs(points) < 1.5 for points in by_key[key].differences)


def test_the_papers_numbers_are_consistent_with_each_other(by_key: Statements) -> None:
    """Section 5.3: 8.22 times as long and 14.34 s more give what 90 % of a GPU takes."""
    ratio, seconds = (
        by_key[key].paper[0] for key in ("tenth_over_nine_tenths", "tenth_less_nine_tenths")
    )
    assert 1.9 < seconds / (ratio - 1) < 2.1
    shared, tenth = by_key["shared_saved_of_load"], by_key["tenth_saved_of_load"]
    assert shared.paper[0] == tenth.paper[0]
    assert shared.ours[0] == tenth.ours[0]
