"""Measured cells in tables laid out like the paper's. Pure but for the printing."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from rich.console import Console

from benchmarks.cake.cell_setting import CellSetting
from benchmarks.cake.cell_times import CellTimes
from benchmarks.cake.paper_tables import PaperTable
from benchmarks.restore.show import new_table, show

_MILLI = 1e3


def show_measured_table(
    console: Console,
    table: PaperTable,
    found: Mapping[CellSetting, CellTimes],
    *,
    tokens_max: int,
    notes: Iterable[str] = (),
) -> None:
    """Three rows for each of the paper's: its speed-ups, ours, and our time over the oracle's."""
    columns = list(dict.fromkeys(cell.labels[-1] for cell in table.cells))
    grid = new_table(
        f"Table {table.number} measured: {table.title}",
        (*table.columns[:-1], ""),
        columns,
    )
    for labels, members in groupby(table.cells, key=lambda cell: cell.labels[:-1]):
        row = {cell.labels[-1]: cell for cell in members}
        times = {column: found[CellSetting.of(cell, tokens_max)] for column, cell in row.items()}
        lines = {
            "paper": {
                column: _pair(cell.over_load, cell.over_compute) for column, cell in row.items()
            },
            "ours": {
                column: _pair(each.over_load, each.over_compute) for column, each in times.items()
            },
            "to oracle": {column: f"{each.to_oracle:.3f}" for column, each in times.items()},
        }
        for number, (name, texts) in enumerate(lines.items()):
            head = [label if number == 0 else "" for label in labels]
            grid.add_row(*head, name, *(texts.get(column, "") for column in columns))
    show(console, grid, notes)


def show_times(console: Console, found: Mapping[CellSetting, CellTimes]) -> None:
    """Every cell with the median, least and most milliseconds of each way."""
    grid = new_table(
        "Milliseconds until the first token: median least-most",
        ("cell",),
        ("cake", "load alone", "compute alone", "oracle", "to oracle", "to best"),
    )
    for setting, times in found.items():
        grid.add_row(
            setting.label,
            *(
                _spread(seconds)
                for seconds in (times.cake_s, times.load_s, times.compute_s, times.oracle_s)
            ),
            f"{times.to_oracle:.3f}",
            f"{times.to_best_baseline:.3f}",
        )
    show(console, grid)


def _pair(over_load: float, over_compute: float) -> str:
    mark = "!" if min(over_load, over_compute) < 1 else ""
    return f"{mark}{over_load:.2f}\\{over_compute:.2f}"


def _spread(seconds: Sequence[float]) -> str:
    median, least, most = (
        _MILLI * each for each in (statistics.median(seconds), min(seconds), max(seconds))
    )
    return f"{median:.0f} {least:.0f}-{most:.0f}"
