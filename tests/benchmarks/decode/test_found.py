"""Overheads of durations that are known."""

import pytest

from benchmarks.decode import BENCHMARK
from benchmarks.decode.found import (
    DIRECT,
    MIXED,
    OFF,
    TWO_STAGE,
    VARIANTS,
    Found,
    Steps,
    details_of,
    figures_of,
)
from benchmarks.report import Summary


def steps(**factors: float) -> Steps:
    """Two cycles of 99 steps; each variant is so many times as slow as OFF.

    Steps of the second cycle take twice as long, and two of each cycle ten times.
    """
    found = Steps()
    for variant in (OFF, TWO_STAGE, MIXED, DIRECT):
        factor = factors.get(variant, 1.0)
        for cycle_s in (1.0, 2.0):
            found.cycles[variant].append([factor * cycle_s] * 97 + [10 * factor * cycle_s] * 2)
    return found


def test_overheads_are_those_of_the_same_cycle() -> None:
    found = steps(two_stage=1.01)
    found.cycles[TWO_STAGE][1] = [step_s * 1.02 for step_s in found.cycles[TWO_STAGE][1]]
    assert found.medians_s(OFF) == [1.0, 2.0]
    assert found.overheads_pct(TWO_STAGE) == pytest.approx((1.0, 3.02))
    assert found.overhead_median_pct(TWO_STAGE) == pytest.approx(2.01)
    assert found.overheads_pct(OFF) == (0.0, 0.0)


def test_the_p99_is_that_of_all_steps_of_a_batch() -> None:
    """4 of 198 steps are slow, and decide; the others take no longer than without saving."""
    found = steps()
    assert found.overhead_p99_pct(TWO_STAGE) == 0.0
    found.cycles[TWO_STAGE] = [
        [*cycle[:-2], 3 * cycle[-2], 3 * cycle[-1]] for cycle in found.cycles[OFF]
    ]
    assert found.overhead_p99_pct(TWO_STAGE) == pytest.approx(200.0)
    assert found.overhead_median_pct(TWO_STAGE) == 0.0


def test_figures_are_those_of_the_worst_batch_and_layout() -> None:
    found = {
        size: Found(
            steps(two_stage=1.0 + pct / 100, two_stage_mixed=mixed, direct=1.5 + pct / 100), {}
        )
        for size, pct, mixed in ((1, 1.0, 1.03), (8, 6.0, 1.0), (32, 2.0, 1.0))
    }
    figures = {series.key: series for series in figures_of(found)}
    assert set(figures) == set(BENCHMARK.figures)
    assert figures["tbt_overhead_median_pct"].samples == pytest.approx((3.0, 6.0, 2.0))
    assert figures["tbt_overhead_median_pct"].value == pytest.approx(6.0)
    assert figures["tbt_direct_overhead_median_pct"].value == pytest.approx(56.0)
    assert all(series.summary is Summary.MOST for series in figures.values())


def test_the_p99_is_that_of_all_batches_each_over_its_own_steps() -> None:
    """Fails when steps are not divided by the median of their size: then the slow size decides."""
    found = {}
    for size, step_s, saved_s in ((1, 1.0, 2.0), (32, 100.0, 100.0)):
        found[size] = Found(Steps(), {})
        cycles = found[size].steps.cycles
        for variant in VARIANTS:
            cycles[variant].append([saved_s if variant == TWO_STAGE else step_s] * 100)
    figures = {series.key: series for series in figures_of(found)}
    assert figures["tbt_overhead_p99_pct"].samples == pytest.approx((100.0, 0.0))


def test_every_batch_has_all_variants_and_its_rates() -> None:
    found = {4: Found(steps(two_stage_mixed=1.25), {"rows_per_s": 7.0, "device_mb_per_s": 8.0})}
    details = {series.key: series for series in details_of(found)}
    assert details["batch4_two_stage_mixed_ms"].samples == (1250.0, 2500.0)
    assert details["batch4_two_stage_mixed_overhead_pct"].samples == (25.0, 25.0)
    assert details["batch4_direct_overhead_p99_pct"].value == 0.0
    assert details["batch4_rows_per_s"].unit == "1/s"
    assert details["batch4_device_mb_per_s"].unit == "MB/s"
    assert "batch4_off_overhead_pct" not in details
