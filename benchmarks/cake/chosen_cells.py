"""Which cells of the paper's tables are measured. Pure."""

from collections.abc import Callable
from dataclasses import replace

from benchmarks.cake.paper_tables import TABLES, Cell, PaperTable
from benchmarks.cake.platforms import LLAMA_8B, LONG_ALPACA_13B, TWO_A100

Choice = Callable[[Cell], bool]

_EXTREME_SHARES = (0.125, 1.0)

FULL_CHOICES: dict[int, Choice] = {
    3: lambda cell: cell.gpus is TWO_A100,
    4: lambda cell: cell.model is LONG_ALPACA_13B,
    5: lambda cell: (cell.gpus, cell.gbit_per_s, cell.share) == (TWO_A100, 32, 1),
    6: lambda cell: cell.model in (LONG_ALPACA_13B, LLAMA_8B) and cell.share in _EXTREME_SHARES,
    7: lambda cell: cell.gbit_per_s in (7, 32),
}
"""By table: 5 bandwidths by 4 shares, 6 chunk sizes, 4 lengths, MHA and GQA, 3 widths."""

_QUICK_GRID = ((7, 1.0), (32, 0.5), (32, 1.0), (100, 1.0))

QUICK_CHOICES: dict[int, Choice] = {
    3: lambda cell: cell.gpus is TWO_A100 and (cell.gbit_per_s, cell.share) in _QUICK_GRID,
    4: lambda cell: cell.model is LONG_ALPACA_13B and cell.step_tokens == 64,
    5: lambda cell: FULL_CHOICES[5](cell) and cell.tokens in (8192, 16384),
    6: lambda cell: FULL_CHOICES[6](cell) and (cell.gbit_per_s, cell.share) == (32, 1),
    7: lambda cell: cell.gbit_per_s == 32 and cell.bits in (16, 8),
}


def chosen_tables(choices: dict[int, Choice]) -> tuple[PaperTable, ...]:
    """The tables with those of their cells that were chosen."""
    return tuple(
        replace(table, cells=tuple(filter(choices[table.number], table.cells)))
        for table in TABLES
        if table.number in choices
    )
