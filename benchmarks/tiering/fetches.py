"""The part about states that are not in DRAM when their turn starts: its cause, and remedies."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from rich.table import Table

from benchmarks.benchmark import Settings
from benchmarks.report import Series
from benchmarks.tiering import paper
from benchmarks.tiering.contexts import Context
from benchmarks.tiering.fetching import AS_ALWAYS, Fetching
from benchmarks.tiering.grid import Cell, Grid, Scale
from benchmarks.tiering.serving import Event, Kind, warm_up

FIGURE = "dram_share_remedied"
TYPING_S = 5.0
"""So long a user types at least, from the first sign that is passed on."""
WINDOW_S = 500.0
"""Over so long what turns need is compared with what the disks give."""
REMEDY = "joined, cut, typed"
REMEDIES: Mapping[str, tuple[Fetching, float]] = {
    "as always": (AS_ALWAYS, 1.0),
    "joined": (Fetching(is_joined=True), 1.0),
    "cut": (Fetching(is_cut=True), 1.0),
    "computed": (Fetching(is_joined=True, is_computed=True), 1.0),
    "typed": (Fetching(typing_s=TYPING_S), 1.0),
    "joined, cut": (Fetching(is_joined=True, is_cut=True), 1.0),
    REMEDY: (Fetching(is_joined=True, is_cut=True, typing_s=TYPING_S), 1.0),
    "half the bytes": (AS_ALWAYS, 2.0),
    "half the bytes, joined, typed": (Fetching(is_joined=True, typing_s=TYPING_S), 2.0),
}
"""How states are fetched, and how many times as many tokens the disks give in a second."""


def compare_fetches(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """Replays LLaMA-13B at 10 TB under ``ours`` with every remedy, alone and together."""
    with settings.console.status("fetches") as status:
        grid = Grid(scale, settings.seed, status.update)
        cells = {
            name: grid.fetches(name, fetching, paper.DISK_BYTES_PER_S * factor)
            for name, (fetching, factor) in REMEDIES.items()
        }
    events, turn_contexts = grid.turns(paper.LLAMA_13B)
    needs = {
        name: needed_bytes(events, turn_contexts, paper.LLAMA_13B, is_cut=is_cut)
        for name, is_cut in (("stored", False), ("cut", True))
    }
    settings.console.print(_table(cells))
    bounds = {name: supply_share(each, paper.DISK_BYTES_PER_S) for name, each in needs.items()}
    for name, bound in bounds.items():
        most = max(sum(each) for each in needs[name].values()) / WINDOW_S
        settings.console.print(
            f"{name}: at most {most / paper.GB:.2f} GB/s needed over {WINDOW_S:g} s; "
            f"what the disks give is enough for {bound:.3f} of the turns"
        )
    return (
        Series(key=FIGURE, unit="x", samples=(cells[REMEDY].hits.dram_share,), is_figure=True),
        *(
            Series(key=f"fetches_{name}_supply_share", unit="x", samples=(bound,))
            for name, bound in bounds.items()
        ),
        *(one for name, cell in cells.items() for one in _series(name, cell)),
    )


def needed_bytes(
    events: Sequence[Event],
    turn_contexts: Sequence[Sequence[Context]],
    model: paper.Model,
    *,
    is_cut: bool,
) -> dict[int, list[int]]:
    """Bytes of history of every later turn after the warm-up, by the window in which it starts.

    ``is_cut``: without what the overflow of the model's window drops.
    """
    starts = [event for event in events if event.kind is Kind.START]
    found: dict[int, list[int]] = defaultdict(list)
    for event in starts[warm_up(len(starts)) :]:
        if event.turn == 0:
            continue
        own = turn_contexts[event.conversation]
        before = own[event.turn - 1].token_count
        tokens = own[event.turn].history_tokens if is_cut else before
        found[int(event.time_s / WINDOW_S)].append(tokens * model.token_bytes)
    return found


def supply_share(needed: Mapping[int, Sequence[int]], bytes_per_s: float) -> float:
    """Part of the turns whose bytes the disks can give in their own window, all bytes alike."""
    supply = bytes_per_s * WINDOW_S
    turns = sum(map(len, needed.values()))
    given = sum(len(each) * min(1.0, supply / max(1, sum(each))) for each in needed.values())
    return given / max(1, turns)


def _values(cell: Cell) -> dict[str, tuple[float, str]]:
    hits = cell.hits
    return {
        "hits": (hits.of_all, "%"),
        "dram_share": (hits.dram_share, "x"),
        "dram_share_waited": (hits.dram_share_waited, "x"),
        "in_dram_of_all": (100 * hits.in_dram / max(1, hits.turns), "%"),
        "read_over_needed": (hits.read_bytes / max(1, hits.needed_bytes), "x"),
        "queue_mean": (cell.queue_mean, "turns"),
    }


def _series(name: str, cell: Cell) -> list[Series]:
    key = "_".join(name.replace(",", " ").split())
    return [
        Series(key=f"fetches_{key}_{word}", unit=unit, samples=(value,))
        for word, (value, unit) in _values(cell).items()
    ]


def _table(cells: Mapping[str, Cell]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    table.title = "States in DRAM as their turn starts: LLaMA-13B, 128G/10T, ours"
    table.add_column("fetches")
    for word in ("hits %", "in DRAM", "waited", "in DRAM % of all", "read / needed", "queue"):
        table.add_column(word, justify="right")
    for name, cell in cells.items():
        table.add_row(name, *(f"{value:.3f}" for value, _ in _values(cell).values()))
    return table
