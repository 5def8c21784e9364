"""What commands print: tables and values for people, JSON for programs, progress."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

TABLE_WIDTH_MAX = 1000
"""Cells are folded only beyond this many characters."""

Cell = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One table, and single values that stand above it.

    As JSON it is an object with ``values`` as its entries, and ``rows`` as a list of
    objects with ``columns`` as their keys.
    """

    title: str
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[Cell, ...]] = ()
    values: dict[str, Cell] = field(default_factory=dict)


def write_report(report: Report, *, as_json: bool) -> None:
    """Writes a report to stdout."""
    if as_json:
        rows = [dict(zip(report.columns, row, strict=True)) for row in report.rows]
        document = {**report.values, **({"rows": rows} if report.columns else {})}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    console = Console()
    console.print(report.title, style="bold", highlight=False, markup=False)
    for name, value in report.values.items():
        console.print(f"  {name}: {human(name, value)}", highlight=False, markup=False)
    if report.columns and report.rows:
        table = _table(report)
        # A row stays on one line, so that a key or a path can be copied whole.
        width = Console(width=TABLE_WIDTH_MAX).measure(table).maximum
        Console(width=max(width, console.width)).print(table)


def human(name: str, value: Cell) -> str:
    """A value as people read it; quantities of bytes get a binary unit."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.2f}"
    if isinstance(value, int) and (name == "bytes" or name.endswith("_bytes")):
        return human_bytes(value)
    return str(value)


def heading(column: str) -> str:
    """The name of a column for people: the unit stands in the cells."""
    return column.removesuffix("_bytes").replace("_", " ")


def human_bytes(byte_count: int) -> str:
    """Bytes with the largest binary unit that leaves at least 1."""
    value = float(byte_count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


@contextmanager
def progress_bar(what: str, *, unit_bytes: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr; yields a callback of (done, total)."""
    amount = DownloadColumn(binary_units=True) if unit_bytes else MofNCompleteColumn()
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        amount,
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(what, total=None)

        def report(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        yield report


def _table(report: Report) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    numeric = [
        all(isinstance(row[index], int | float) for row in report.rows)
        for index in range(len(report.columns))
    ]
    for column, is_numeric in zip(report.columns, numeric, strict=True):
        table.add_column(
            heading(column), justify="right" if is_numeric else "left", overflow="fold"
        )
    for row in report.rows:
        cells = zip(report.columns, row, strict=True)
        table.add_row(*(Text(human(column, cell)) for column, cell in cells))
    return table
