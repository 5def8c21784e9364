import pytest

from benchmarks.cake.calibration import calibrated
from benchmarks.cake.paper_tables import TABLES
from benchmarks.cake.virtual_workload import Simulated, simulate_workload
from benchmarks.cake.workload import Workload
from tests.support.untraced import UNTRACED

CELLS = [cell for table in TABLES for cell in table.cells]
NEARLY = 1e-9


@UNTRACED
def test_no_cell_is_slower_than_a_baseline_or_faster_than_the_oracle() -> None:
    """Where the paper's system was, too: its 0.80 to 0.99."""
    assert any(min(cell.over_load, cell.over_compute) < 1 for cell in CELLS)
    for cell in CELLS:
        simulated = simulate_workload(cell, calibrated())
        assert simulated.over_best >= 1 - NEARLY
        assert simulated.over_oracle == pytest.approx(1, abs=0.001)
        assert simulated.cake_s <= simulated.paper_algorithm_s + NEARLY


@UNTRACED
def test_beliefs_that_are_wrong_by_half_are_mended_on_the_way() -> None:
    for cell in TABLES[3].cells:
        for misled in (0.5, 2.0):
            simulated = simulate_workload(cell, calibrated(), misled=misled)
            assert simulated.over_oracle < 1.02
            assert simulated.over_oracle >= 1 - NEARLY


def test_speed_ups_are_over_what_each_side_takes_alone() -> None:
    simulated = Simulated(
        cake_s=2.0,
        paper_algorithm_s=4.0,
        load_s=6.0,
        compute_s=5.0,
        oracle_s=1.0,
        behind_layers_s=0.5,
        computed_tokens=1,
    )
    assert simulated.behind_layers == 0.25
    assert (simulated.over_load, simulated.over_compute) == (3.0, 2.5)
    assert (simulated.over_best, simulated.over_oracle) == (2.5, 2.0)


def test_more_is_computed_where_loading_is_slower() -> None:
    slow, fast = (
        simulate_workload(Workload(gbit_per_s=gbit_per_s, tokens=4096), calibrated())
        for gbit_per_s in (5, 50)
    )
    assert 0 < fast.computed_tokens < slow.computed_tokens < 4096
