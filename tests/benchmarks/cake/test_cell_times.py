import pytest

from benchmarks.cake.cell_times import CellTimes, mean_speedup, median_ratio

TIMES = CellTimes(
    cake_s=(1.0, 2.0, 1.0),
    load_s=(2.0, 3.0, 3.0),
    compute_s=(1.5, 2.0, 0.9),
    oracle_s=(0.8, 2.0, 1.0),
    were_equal=True,
    cake_parts_s={},
)


def test_ratios_are_medians_of_rounds() -> None:
    assert median_ratio((2.0, 9.0, 4.0), (1.0, 3.0, 4.0)) == 2.0
    assert TIMES.over_load == 2.0
    assert TIMES.over_compute == 1.0
    assert TIMES.to_oracle == 1.0


def test_the_better_baseline_is_the_one_that_we_are_closer_to() -> None:
    assert TIMES.to_best_baseline == pytest.approx(1.0)


def test_the_mean_leaves_extreme_speedups_out_as_the_paper_does() -> None:
    assert mean_speedup([1.0, 3.0, 10.5]) == 2.0
    assert mean_speedup([11.0, 13.0]) == 12.0
