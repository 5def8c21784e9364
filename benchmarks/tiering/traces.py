"""The part over real traces: every policy at every capacity, with and without hints."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.report import Series, Summary
from benchmarks.tiering.plot import plot_hits
from benchmarks.tiering.policies import OTHERS, PolicyName
from benchmarks.tiering.show import show_trace
from benchmarks.tiering.trace import Request, read_trace
from benchmarks.tiering.trace_replay import Step, found_percent, steps

FIGURE = "mooncake_vs_best_policy_min"
CAPACITIES = tuple(1000 * 2**power for power in range(8))
QUICK_CAPACITIES = (1000, 4000)
QUICK_REQUESTS = 1500
LOADS = (None, 0.5, 0.9, 1.1)
"""None: nobody waits, so nobody is hinted."""
_UNHINTED = (*OTHERS, PolicyName.DENSITY, PolicyName.OURS, PolicyName.RETURN, PolicyName.BELADY)
_HINTED = tuple(name for name in PolicyName if name.is_hinted)


def replay_traces(settings: Settings) -> tuple[Series, ...]:
    """Replays the traces that were named; raises BenchmarkError."""
    if not settings.traces:
        raise BenchmarkError("the part traces needs --trace FILE; other parts need none")
    series: list[Series] = []
    ratios: list[float] = []
    for path in settings.traces:
        found, least = _replay(settings, path)
        series += found
        ratios += least
    figure = Series(
        key=FIGURE, unit="x", samples=tuple(ratios), summary=Summary.LEAST, is_figure=True
    )
    return (*series, figure)


def _replay(settings: Settings, path: Path) -> tuple[list[Series], list[float]]:
    """Series of one trace, and ours over the best of the others at every capacity and load."""
    requests: Sequence[Request] = read_trace(path)
    capacities = CAPACITIES
    if settings.quick:
        requests, capacities = requests[:QUICK_REQUESTS], QUICK_CAPACITIES
    series: list[Series] = []
    ratios: list[float] = []
    lines: dict[str, Sequence[float]] = {}
    others: list[float] = []
    for load in LOADS:
        order, waiting = steps(requests, load)
        policies = _UNHINTED if load is None else _HINTED
        hits = {
            policy: _curve(settings, requests, order, policy, capacities) for policy in policies
        }
        if load is None:
            others = [max(values) for values in zip(*(hits[one] for one in OTHERS), strict=True)]
        suffix = "" if load is None else f" hinted, load {load}"
        named = {f"{policy.value}{suffix}": values for policy, values in hits.items()}
        title = f"{path.stem}{suffix}: blocks found in %, {waiting:.1f} requests wait on average"
        show_trace(settings.console, title, capacities, named)
        lines |= named
        ratios += [own / best for own, best in zip(hits[PolicyName.OURS], others, strict=True)]
        key = f"{path.stem}_{'unhinted' if load is None else f'load_{load}'}"
        series.append(Series(key=f"{key}_queue_mean", unit="requests", samples=(waiting,)))
        series += [
            Series(key=f"{key}_{_word(policy)}_percent", unit="%", samples=tuple(values))
            for policy, values in hits.items()
        ]
    if settings.plots is not None:
        plot_hits(settings.plots / f"tiering_{path.stem}.png", path.stem, capacities, lines)
    return series, ratios


def _curve(
    settings: Settings,
    requests: Sequence[Request],
    order: Sequence[Step],
    policy: PolicyName,
    capacities: Sequence[int],
) -> list[float]:
    with settings.console.status(policy.value):
        return [found_percent(requests, order, policy, capacity) for capacity in capacities]


def _word(policy: PolicyName) -> str:
    return policy.value.replace("-", "_").replace(" ", "_")
