"""Tables 3 to 7 of the paper with our planner under a virtual clock."""

import statistics
from collections.abc import Iterator, Sequence

from benchmarks.benchmark import Settings
from benchmarks.cake.calibration import Calibration, calibrated
from benchmarks.cake.paper_tables import TABLES, PaperTable
from benchmarks.cake.show import show_calibration, show_table
from benchmarks.cake.virtual_cell import Simulated, simulate_cell
from benchmarks.report import Series, Summary

FIGURES = tuple(f"table{table.number}_mean_abs_rel_diff" for table in TABLES)

MISLED = (0.5, 2.0)
"""Wrong beliefs of the planner before its first step."""


def simulate(settings: Settings) -> tuple[Series, ...]:
    """Runs every cell, shows it beside the paper's, and says how far ours is from it."""
    calibration = calibrated()
    show_calibration(settings.console, calibration)
    series: list[Series] = []
    for table in TABLES:
        cells = simulated(table, calibration)
        show_table(settings.console, table, cells)
        series.extend(table_series(table, cells))
        series.append(misled_series(table, calibration))
    return tuple(series)


def simulated(table: PaperTable, calibration: Calibration) -> tuple[Simulated, ...]:
    """Every cell of a table."""
    return tuple(simulate_cell(cell, calibration) for cell in table.cells)


def table_series(table: PaperTable, cells: Sequence[Simulated]) -> Iterator[Series]:
    """The figure of a table, and what explains it.

    Of each cell both differences count, from the paper's speed-up over loading alone and
    over computing alone, those cells included that the costs were calibrated with.
    """
    differences = [each for cell in cells for each in cell.relative_differences]
    yield Series(
        key=f"table{table.number}_mean_abs_rel_diff",
        unit="ratio",
        samples=(statistics.mean(differences),),
        is_figure=True,
    )
    printed = [each for cell in cells for each in cell.paper_algorithm_differences]
    yield Series(
        key=f"table{table.number}_paper_algorithm_mean_abs_rel_diff",
        unit="ratio",
        samples=(statistics.mean(printed),),
    )
    yield Series(
        key=f"table{table.number}_over_best_baseline",
        unit="ratio",
        samples=tuple(cell.over_best for cell in cells),
        summary=Summary.LEAST,
    )
    yield Series(
        key=f"table{table.number}_over_oracle",
        unit="ratio",
        samples=tuple(cell.over_oracle for cell in cells),
        summary=Summary.MOST,
    )
    yield Series(
        key=f"table{table.number}_behind_layers",
        unit="ratio",
        samples=tuple(cell.behind_layers for cell in cells),
    )


def misled_series(table: PaperTable, calibration: Calibration) -> Series:
    """Over the oracle when computing is believed to take half or twice as long as it does."""
    return Series(
        key=f"table{table.number}_over_oracle_misled",
        unit="ratio",
        samples=tuple(
            simulate_cell(cell, calibration, misled=misled).over_oracle
            for misled in MISLED
            for cell in table.cells
        ),
        summary=Summary.MOST,
    )
