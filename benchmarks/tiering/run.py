"""The parts: the paper's conversations, real traces, what goes at once, fetches, decisions."""

from collections.abc import Sequence

from benchmarks.benchmark import Benchmark, Settings
from benchmarks.report import Series
from benchmarks.tiering import paper
from benchmarks.tiering.conversations import statistics_of
from benchmarks.tiering.decisions import FIGURE as DECISIONS_FIGURE
from benchmarks.tiering.decisions import KEYS, QUICK_KEYS, measure_decisions
from benchmarks.tiering.fetches import FIGURE as FETCHES_FIGURE
from benchmarks.tiering.fetches import compare_fetches
from benchmarks.tiering.grid import FULL, QUICK, Cell, Grid, Scale
from benchmarks.tiering.policies import PolicyName
from benchmarks.tiering.sequences import FIGURE as SEQUENCES_FIGURE
from benchmarks.tiering.sequences import compare_units
from benchmarks.tiering.show import show_cells, show_workload
from benchmarks.tiering.traces import FIGURE as TRACES_FIGURE
from benchmarks.tiering.traces import replay_traces

PAPER, TRACES, SEQUENCES, DECISIONS = "paper", "traces", "sequences", "decisions"
FETCHES = "fetches"
PARTS = {
    PAPER: (
        "hit_13b_10t",
        "hit_13b_2t",
        "hit_65b_10t",
        "hit_70b_10t",
        "hit_falcon_10t",
        "lru_13b_10t",
        "ours_minus_lru_13b_10t",
        "dram_share_of_hits",
        "vs_belady_points",
    ),
    TRACES: (TRACES_FIGURE,),
    SEQUENCES: (SEQUENCES_FIGURE,),
    FETCHES: (FETCHES_FIGURE,),
    DECISIONS: (DECISIONS_FIGURE,),
}


def simulate_paper(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """Replays all settings of the paper, with tables; the seed decides everything."""
    with settings.console.status("conversations") as status:
        grid = Grid(scale, settings.seed, status.update)
        show_workload(settings.console, statistics_of(grid.conversations))
        titles = {
            "Figure 21: LLaMA-13B": grid.figure_21() + grid.other_stores(),
            "Figure 13: other models": grid.figure_13(),
            "Figure 22: positions coupled to the states": grid.figure_22(),
            "Figure 23: parts of the capacity that an hour needs": grid.figure_23(),
            "Figure 24: without disks": grid.figure_24(),
            "Other loads": grid.loads(),
        }
    for title, cells in titles.items():
        show_cells(settings.console, title, cells)
    cells = [cell for found in titles.values() for cell in found]
    statistics = statistics_of(grid.conversations)
    return (
        *_figures(cells),
        *(_series(f"workload_{name}", own) for name, (own, _) in statistics.items()),
        *(one for cell in cells for one in _series_of(cell)),
    )


def _figures(cells: Sequence[Cell]) -> tuple[Series, ...]:
    """The promised keys, from cells of figures 13 and 21."""

    def hit(figure: str, model: str, policy: PolicyName, label: str = "128G/10T") -> Cell:
        return next(
            cell
            for cell in cells
            if (cell.figure, cell.model.key, cell.setting.policy, cell.label)
            == (figure, model, policy, label)
        )

    ours = hit("21", "13b", PolicyName.OURS)
    lru = hit("21", "13b", PolicyName.LRU)
    small = hit("21", "13b", PolicyName.OURS, "128G/2T")
    belady = hit("21", "13b", PolicyName.BELADY)
    others = {
        f"hit_{model.key}_10t": hit("13", model.key, PolicyName.OURS).hits.of_all
        for model in paper.MODELS[1:]
    }
    values = {
        "hit_13b_10t": ours.hits.of_all,
        "hit_13b_2t": small.hits.of_all,
        **others,
        "lru_13b_10t": lru.hits.of_all,
        "ours_minus_lru_13b_10t": ours.hits.of_all - lru.hits.of_all,
        "dram_share_of_hits": ours.hits.dram_share,
        "vs_belady_points": belady.hits.of_all - ours.hits.of_all,
    }
    return tuple(_series(key, value, is_figure=True) for key, value in values.items())


def _series_of(cell: Cell) -> tuple[Series, ...]:
    words = (cell.figure, cell.model.key, cell.label, cell.setting.policy.value)
    key = "_".join(words).lower()
    for sign in " ,-/+.":
        key = key.replace(sign, "_")
    key = "_".join(word for word in key.split("_") if word)
    key = key if cell.figure.startswith("load") else f"figure_{key}"
    return (
        _series(f"{key}_hits", cell.hits.of_all),
        _series(f"{key}_hits_of_later", cell.hits.of_later),
        _series(f"{key}_dram_share", cell.hits.dram_share),
        _series(f"{key}_dram_share_waited", cell.hits.dram_share_waited),
        _series(f"{key}_queue_mean", cell.queue_mean),
    )


def _series(key: str, value: float, *, is_figure: bool = False) -> Series:
    unit = "points" if "minus" in key or "points" in key else "%"
    if "share" in key or key.startswith("workload"):
        unit = "x"
    if key.endswith("queue_mean"):
        unit = "turns"
    return Series(key=key, unit=unit, samples=(value,), is_figure=is_figure)


def run(settings: Settings) -> tuple[Series, ...]:
    """Runs the chosen parts, all when none is; raises BenchmarkError."""
    chosen = settings.parts or tuple(PARTS)
    found: tuple[Series, ...] = ()
    if TRACES in chosen:
        found += replay_traces(settings)
    if PAPER in chosen:
        found += simulate_paper(settings, QUICK if settings.quick else FULL)
    if SEQUENCES in chosen:
        found += compare_units(settings, QUICK if settings.quick else FULL)
    if FETCHES in chosen:
        found += compare_fetches(settings, QUICK if settings.quick else FULL)
    if DECISIONS in chosen:
        key_count = QUICK_KEYS if settings.quick else KEYS
        found += measure_decisions(settings.seed, key_count=key_count)
    return found


BENCHMARK = Benchmark(
    name="tiering",
    figures=tuple(figure for names in PARTS.values() for figure in names),
    run=run,
    parts=PARTS,
)
