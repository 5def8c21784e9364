"""Tables 3 to 7 of the paper, and its earlier version, with our planner under a virtual clock."""

import statistics
from collections.abc import Iterator, Sequence

from benchmarks.benchmark import Settings
from benchmarks.cake.calibration import Calibration, calibrated
from benchmarks.cake.compared_cell import ComparedCell
from benchmarks.cake.earlier_paper import statements
from benchmarks.cake.paper_tables import TABLES, PaperTable
from benchmarks.cake.show import show_calibration, show_table
from benchmarks.cake.show_earlier import show_statements
from benchmarks.cake.statement import Statement
from benchmarks.cake.virtual_workload import simulate_workload
from benchmarks.report import Series, Summary

FIGURES = (
    *(f"table{table.number}_mean_abs_rel_diff" for table in TABLES),
    "earlier_mean_abs_points",
    "earlier_mean_abs_rel_diff",
)

MISLED = (0.5, 2.0)
"""Wrong beliefs of the planner before its first step."""


def simulate(settings: Settings) -> tuple[Series, ...]:
    """Runs every cell, shows it beside the paper's, and says how far ours is from it."""
    calibration = calibrated()
    show_calibration(settings.console, calibration)
    series: list[Series] = []
    for table in TABLES:
        cells = compared(table, calibration)
        show_table(settings.console, table, cells)
        series.extend(table_series(table, cells))
        series.append(misled_series(table, calibration))
    earlier = statements(calibration)
    show_statements(settings.console, earlier)
    series.extend(earlier_series(earlier))
    return tuple(series)


def compared(table: PaperTable, calibration: Calibration) -> tuple[ComparedCell, ...]:
    """Every cell of a table."""
    return tuple(
        ComparedCell(cell=cell, ours=simulate_workload(cell, calibration)) for cell in table.cells
    )


def table_series(table: PaperTable, cells: Sequence[ComparedCell]) -> Iterator[Series]:
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
        samples=tuple(cell.ours.over_best for cell in cells),
        summary=Summary.LEAST,
    )
    yield Series(
        key=f"table{table.number}_over_oracle",
        unit="ratio",
        samples=tuple(cell.ours.over_oracle for cell in cells),
        summary=Summary.MOST,
    )
    yield Series(
        key=f"table{table.number}_behind_layers",
        unit="ratio",
        samples=tuple(cell.ours.behind_layers for cell in cells),
    )


def misled_series(table: PaperTable, calibration: Calibration) -> Series:
    """Over the oracle when computing is believed to take half or twice as long as it does."""
    return Series(
        key=f"table{table.number}_over_oracle_misled",
        unit="ratio",
        samples=tuple(
            simulate_workload(cell, calibration, misled=misled).over_oracle
            for misled in MISLED
            for cell in table.cells
        ),
        summary=Summary.MOST,
    )


def earlier_series(earlier: Sequence[Statement]) -> Iterator[Series]:
    """How far ours is from the earlier paper's numbers: percentages, all others, savings.

    The last has savings as the speed-ups that they are, which is how the tables count.
    """
    percentages, others = (
        [
            abs(difference)
            for statement in earlier
            if statement.is_percentage is is_percentage
            for difference in statement.differences
        ]
        for is_percentage in (True, False)
    )
    speedups = [abs(each) for statement in earlier for each in statement.speedup_differences]
    for key, unit, differences, is_figure in (
        ("earlier_mean_abs_points", "points", percentages, True),
        ("earlier_mean_abs_rel_diff", "ratio", others, True),
        ("earlier_savings_mean_abs_rel_diff", "ratio", speedups, False),
    ):
        mean = statistics.mean(differences)
        yield Series(key=key, unit=unit, samples=(mean,), is_figure=is_figure)
    for statement in earlier:
        key = f"earlier_{statement.key}"
        yield Series(key=key, unit=statement.unit.value, samples=statement.ours)
