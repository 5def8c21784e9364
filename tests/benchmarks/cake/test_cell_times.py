from dataclasses import replace

import pytest

from benchmarks.cake.cell_times import CellTimes, mean_speedup, median_ratio

TIMES = CellTimes(
    cake_s=(1.0, 2.0, 1.0),
    load_s=(2.0, 3.0, 3.0),
    compute_s=(1.5, 2.0, 0.9),
    oracle_s=(0.8, 2.0, 1.0),
    nominal_oracle_s=(0.5, 1.0, 0.5),
    beside_oracle_s=(1.25,),
    were_equal=True,
    cake_parts_s={"waited": (0.1, 0.2, 0.3)},
)


def test_ratios_are_medians_of_rounds() -> None:
    assert median_ratio((2.0, 9.0, 4.0), (1.0, 3.0, 4.0)) == 2.0
    assert TIMES.over_load == 2.0
    assert TIMES.over_compute == 1.0
    assert TIMES.to_oracle == 1.0
    assert TIMES.to_nominal_oracle == 2.0


def test_what_was_measured_beside_each_other_belongs_to_no_round() -> None:
    assert TIMES.to_beside_oracle == pytest.approx(1.0 / 1.25)


def test_more_rounds_of_a_cell_count_with_the_first() -> None:
    more = replace(
        TIMES,
        cake_s=(9.0,),
        load_s=(9.0,),
        compute_s=(9.0,),
        oracle_s=(9.0,),
        nominal_oracle_s=(9.0,),
        beside_oracle_s=(9.0,),
        were_equal=False,
        cake_parts_s={"waited": (9.0,)},
    )
    joined = TIMES.joined(more)
    for name in ("cake_s", "load_s", "compute_s", "oracle_s", "nominal_oracle_s"):
        assert getattr(joined, name) == (*getattr(TIMES, name), 9.0)
    assert joined.beside_oracle_s == (1.25, 9.0)
    assert joined.cake_parts_s == {"waited": (0.1, 0.2, 0.3, 9.0)}
    assert not joined.were_equal
    assert not more.joined(TIMES).were_equal
    assert TIMES.joined(TIMES).were_equal


def test_the_better_baseline_is_the_one_that_we_are_closer_to() -> None:
    assert TIMES.to_best_baseline == pytest.approx(1.0)


def test_the_mean_leaves_extreme_speedups_out_as_the_paper_does() -> None:
    assert mean_speedup([1.0, 3.0, 10.5]) == 2.0
    assert mean_speedup([11.0, 13.0]) == 12.0
