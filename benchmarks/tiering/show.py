"""What was simulated beside what the paper says, as tables."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.tiering import paper
from benchmarks.tiering.constants import SERVICE_TURNS_PER_S, THINK_S
from benchmarks.tiering.grid import Cell
from benchmarks.tiering.policies import PolicyName

EMPTY_QUEUE = paper.BATCH
"""With fewer waiting turns than the server runs at once hints say nothing."""


def show_workload(console: Console, statistics: Mapping[str, tuple[float, float]]) -> None:
    """The conversations' own figures beside the paper's."""
    table = _table("Conversations", "", "ours", "paper")
    for name, (own, published) in statistics.items():
        table.add_row(name, f"{own:.2f}", f"{published:.2f}")
    console.print(table)
    console.print(
        f"one fitted number: {SERVICE_TURNS_PER_S:g} turns/s, from LRU at 128G/10T; a turn follows "
        f"its reply after {THINK_S:g} s on average\n"
    )


def show_cells(console: Console, title: str, cells: Sequence[Cell]) -> None:
    """One row for each replay."""
    table = _table(
        title,
        *("figure", "model", "capacity", "policy", "hits %", "paper", "of later %"),
        *("in DRAM %", "waited %", "queue"),
    )
    for cell in cells:
        published = published_hit(cell)
        table.add_row(
            cell.figure,
            cell.model.name,
            cell.label,
            cell.setting.policy.value,
            f"{cell.hits.of_all:.1f}",
            "" if published is None else f"{published:.1f}",
            f"{cell.hits.of_later:.1f}",
            f"{100 * cell.hits.dram_share:.1f}",
            f"{100 * cell.hits.dram_share_waited:.1f}",
            f"{cell.queue_mean:.0f}",
        )
    console.print(table)
    idle = sorted({cell.figure for cell in cells if cell.queue_mean < EMPTY_QUEUE})
    if idle:
        console.print(f"nearly nobody waits, so hints tell nothing: {', '.join(idle)}")
    console.print()


def published_hit(cell: Cell) -> float | None:
    """The paper's number for a replay, in percent; None where it has none."""
    policy, model = cell.setting.policy, cell.model
    is_ours = policy in {PolicyName.LOOK_AHEAD, PolicyName.OURS}
    match cell.figure.split(",")[0]:
        case "21" if "tokens" not in cell.figure:
            # Of inclusive tiers the disks are smaller by what DRAM has.
            terabytes = float(cell.label.rpartition("/")[2].rstrip("T"))
            disk_bytes = paper.TB * (2 if terabytes <= 2 else 10)
            key = "look-ahead" if is_ours else policy.value
            return paper.FIGURE_21[disk_bytes].get(key)
        case "13" if is_ours:
            return model.hit
        case "22" if is_ours:
            return model.hit - model.overflow_loss
        case "23" if is_ours:
            return paper.FIGURE_23[float(cell.figure.split()[1])]
        case "24" if is_ours:
            return model.dram_hit if "DRAM" in cell.figure else 0.0
    return None


def show_trace(
    console: Console,
    title: str,
    capacities: Sequence[int],
    hits: Mapping[str, Sequence[float]],
) -> None:
    """Found blocks of a trace by policy and capacity."""
    table = _table(title, "policy", *(f"{capacity}" for capacity in capacities))
    for name, values in hits.items():
        table.add_row(name, *(f"{value:.2f}" for value in values))
    console.print(table)
    console.print()


def _table(title: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for column in columns:
        is_text = column in {"", "figure", "model", "capacity", "policy"}
        table.add_column(column, justify="left" if is_text else "right")
    return table
