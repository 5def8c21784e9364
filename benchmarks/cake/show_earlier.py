"""What the earlier paper says beside our simulation, as a table."""

from collections.abc import Sequence

from rich.console import Console

from benchmarks.cake.statement import Statement
from benchmarks.restore.show import new_table, show

_NOTES = (
    "7B; costs as above, nothing is fitted to this paper; it has pictures: the numbers of its text",
    "section 5.2: falling by 10 % and by 15 % is taken as points",
    "sections 5.3 and 5.4 name no server: A100; they say 2 to 10 Gbps: 2, 5 and 10, 11.83x at 10",
    "codecs: 2 and 8.6 times fewer bytes (section 5.4); decoding costs nothing here",
    (
        "11.83x: 16.3 s of computing alone (by 8.22x and 14.34 s) become 1.4 s; loading alone is "
        "0.75 s by 7.97x at 10 Gbps: its decoding takes time, or its bandwidth was lower"
    ),
)


def show_statements(console: Console, statements: Sequence[Statement]) -> None:
    """One row for each of the paper's sentences: its numbers, ours, and the differences."""
    table = new_table(
        "Cake, earlier version: its section 5, out of sample",
        ("section", ""),
        ("paper", "ours", "", "difference"),
    )
    for statement in statements:
        table.add_row(
            statement.section,
            statement.text,
            _range(statement, statement.paper),
            _range(statement, statement.ours),
            statement.unit.value,
            " / ".join(_difference(statement, each) for each in statement.differences),
        )
    show(console, table, _NOTES)


def _range(statement: Statement, numbers: tuple[float, ...]) -> str:
    digits = 1 if statement.is_percentage else 2
    return " - ".join(f"{number:.{digits}f}" for number in numbers)


def _difference(statement: Statement, difference: float) -> str:
    return f"{difference:+z.1f}" if statement.is_percentage else f"{difference:+z.1%}"
