"""The simulation in tables laid out like the paper's."""

import statistics
from collections.abc import Sequence
from itertools import groupby

from rich.console import Console

from benchmarks.cake.calibration import Calibration
from benchmarks.cake.compared_cell import ComparedCell
from benchmarks.cake.paper_tables import PaperTable
from benchmarks.restore.show import new_table, show

_TERA = 1e12
_MILLI = 1e3


def show_calibration(console: Console, calibration: Calibration) -> None:
    """What the costs are made of, and how to read the tables."""
    speeds = ", ".join(f"{name} {flops / _TERA:.0f}" for name, flops in calibration.flops.items())
    attention = f"{calibration.attention_efficiency:.2f}"
    overhead = f"{calibration.chunk_overhead_s * _MILLI:.2f} ms"
    lines = [
        "Costs: five numbers from five cells of 13B at 100 % utilisation, whose two speed-ups tell",
        "what computing alone took, since loading alone takes bytes over bandwidth:",
        f"* table 3, 7 Gbps: effective TFLOPS of {speeds}",
        f"* table 5, A100, 7 Gbps, 4k: attention reaches {attention} of them",
        f"* table 3, A100, 100 Gbps: a chunk takes {overhead} besides its bytes",
        "A step reads the weights at the memory's nominal bandwidth. Nothing is fitted to other",
        "models, shares of the budget, lengths, chunk sizes, bandwidths or widths.",
        "",
        "Loading alone ends with a step for the first token that others share, as ours does. By",
        "the paper's quotients that of its baseline did not depend on utilisation: an idle GPU.",
        "",
        "Cells: speed-up over loading alone \\ over computing alone. !: slower than one of them.",
    ]
    console.print()
    for line in lines:
        console.print(line, highlight=False)


def show_table(console: Console, table: PaperTable, cells: Sequence[ComparedCell]) -> None:
    """Two rows for each of the paper's, the paper's numbers and ours, in the same columns."""
    columns = list(dict.fromkeys(cell.cell.labels[-1] for cell in cells))
    title = f"Table {table.number}: {table.title}"
    grid = new_table(title, (*table.columns[:-1], ""), columns)
    for labels, members in groupby(cells, key=lambda cell: cell.cell.labels[:-1]):
        row = list(members)
        grid.add_row(
            *labels, "paper", *(_text(each.cell.over_load, each.cell.over_compute) for each in row)
        )
        grid.add_row(
            *("" for _ in labels),
            "ours",
            *(_text(each.ours.over_load, each.ours.over_compute) for each in row),
        )
    mean = statistics.mean(each for cell in cells for each in cell.relative_differences)
    printed = statistics.mean(each for cell in cells for each in cell.paper_algorithm_differences)
    least = min(cell.ours.over_best for cell in cells)
    most = max(cell.ours.over_oracle for cell in cells)
    difference = f"mean absolute relative difference {mean:.1%}; of the paper's algorithm with "
    notes = (
        f"{difference}our costs {printed:.1%}",
        f"ours over the better baseline: at least {least:.3f}; over the oracle: at most {most:.3f}",
    )
    show(console, grid, notes)


def _text(over_load: float, over_compute: float) -> str:
    mark = "!" if min(over_load, over_compute) < 1 else ""
    return f"{mark}{over_load:.2f}\\{over_compute:.2f}"
