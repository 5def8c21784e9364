import pytest

from benchmarks.cake.compared_cell import ComparedCell
from benchmarks.cake.paper_tables import Cell
from benchmarks.cake.virtual_workload import Simulated


def test_differences_are_relative_to_the_papers() -> None:
    ours = Simulated(
        cake_s=2.0,
        paper_algorithm_s=4.0,
        load_s=6.0,
        compute_s=5.0,
        oracle_s=1.0,
        behind_layers_s=0.0,
        computed_tokens=1,
    )
    cell = Cell(labels=(), over_load=2.0, over_compute=4.0, gbit_per_s=1)
    compared = ComparedCell(cell=cell, ours=ours)
    assert compared.relative_differences == pytest.approx((0.5, 0.375))
    assert compared.paper_algorithm_differences == pytest.approx((0.25, 0.6875))
