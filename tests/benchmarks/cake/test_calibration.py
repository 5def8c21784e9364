"""The five cells come out of the costs that they were calibrated with."""

import pytest

from benchmarks.cake.calibration import (
    calibrated,
    chunk_count,
    compute_cost,
    load_alone_s,
    load_cost,
    quotient,
)
from benchmarks.cake.paper_tables import TABLES, Cell
from benchmarks.cake.workload import CHUNK_TOKENS

CALIBRATED = [
    cell
    for cell in TABLES[0].cells
    if cell.share == 1
    and (cell.gbit_per_s == 7 or (cell.gbit_per_s == 100 and cell.gpus.name == "A100"))
] + [
    cell
    for cell in TABLES[2].cells
    if (cell.gpus.name, cell.share, cell.gbit_per_s, cell.tokens) == ("A100", 1, 7, 4096)
]


def computed_s(cell: Cell) -> float:
    return compute_cost(cell, calibrated()).compute_s(0, cell.tokens, cell.share * cell.step_tokens)


@pytest.mark.parametrize("cell", CALIBRATED, ids=lambda cell: " ".join(cell.labels))
def test_computing_alone_takes_what_the_cell_implies(cell: Cell) -> None:
    loaded_s = load_alone_s(cell, calibrated().chunk_overhead_s)
    assert computed_s(cell) / loaded_s == pytest.approx(quotient(cell), rel=1e-6)


def test_five_cells_give_five_plausible_numbers() -> None:
    assert len(CALIBRATED) == 5
    calibration = calibrated()
    # Nominal: 312 TFLOPS an A100, 989 an H100.
    assert 312e12 / 2 < calibration.flops["A100"] < 312e12
    assert calibration.flops["A100"] < calibration.flops["2xA100"] < 2 * calibration.flops["A100"]
    assert calibration.flops["A100"] < calibration.flops["H100"] < 989e12
    assert 0.5 < calibration.attention_efficiency < 1
    assert 0 < calibration.chunk_overhead_s < 0.002


def test_a_share_of_the_budget_takes_that_many_times_as_long() -> None:
    eighth, half, whole = (TABLES[0].cells[index] for index in (0, 5, 15))
    assert (eighth.share, half.share, whole.share) == (0.125, 0.5, 1)
    assert computed_s(half) == pytest.approx(2 * computed_s(whole), rel=1e-3)
    assert computed_s(eighth) == pytest.approx(8 * computed_s(whole), rel=1e-3)


def test_compressed_chunks_are_smaller() -> None:
    wide, narrow = (TABLES[4].cells[index] for index in (0, 2))
    assert (wide.bits, narrow.bits) == (16, 3)
    assert load_cost(narrow, 0.0).chunk_s == pytest.approx(load_cost(wide, 0.0).chunk_s * 3 / 16)
    assert load_cost(wide, 0.5).chunk_s == pytest.approx(load_cost(wide, 0.0).chunk_s + 0.5)
    assert chunk_count(wide) == 16 * 1024 / CHUNK_TOKENS
