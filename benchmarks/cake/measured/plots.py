"""Pictures of what was measured, as PNG.

matplotlib is imported when something is drawn: nothing else of the benchmark needs it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.benchmark import BenchmarkError
from benchmarks.cake.fluctuation import Fluctuation
from benchmarks.cake.measured.history import Taken
from benchmarks.cake.measured.shared_model import StepRecord
from engine_adapters.runner.restore.pointer_sample import PointerSample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES = (9.0, 6.0)
_DOTS_PER_INCH = 110
_RATE_POINTS = 1000
_MEGA = 1e6


def check_plots() -> None:
    """Raises BenchmarkError where nothing could be drawn: sooner than after all measurements."""
    try:
        _figure()
    except ImportError as error:
        raise BenchmarkError(f"the pictures need matplotlib: {error}") from None


def plot_pointers(
    path: Path, taken: Taken, samples: Sequence[PointerSample], rate: Fluctuation
) -> None:
    """Both pointers over time, above what each side could do (as the paper's figure 5)."""
    figure = _figure()
    pointers, tokens = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    start_s = taken.started_s
    times_s = [sample.now_s - start_s for sample in samples]
    pointers.step(
        times_s, [each.computed_to for each in samples], where="post", label="compute pointer"
    )
    pointers.step(
        times_s, [each.loaded_from for each in samples], where="post", label="load pointer"
    )
    pointers.set_ylabel("token")
    pointers.legend()
    pointers.set_title("Computing from the front, loading from the back, both fluctuating")
    steps = taken.steps
    tokens.step(
        [step.started_s - start_s for step in steps],
        [step.token_count for step in steps],
        where="post",
    )
    tokens.set_ylabel("tokens of the step")
    tokens.set_xlabel("seconds since the request")
    rates = tokens.twinx()
    grid = [taken.ttft_s * number / _RATE_POINTS for number in range(_RATE_POINTS)]
    rates.plot(grid, [rate.value(start_s + each) / _MEGA for each in grid], color="tab:orange")
    rates.set_ylabel("device, MB/s", color="tab:orange")
    _save(figure, path)


def plot_batches(path: Path, runs: Mapping[str, tuple[float, Sequence[StepRecord]]]) -> None:
    """Tokens of every step over time, one line a way of scheduling (as the paper's figure 6).

    ``runs`` has the start and the steps of each.
    """
    figure = _figure()
    axes = figure.subplots()
    for name, (start_s, steps) in runs.items():
        edges_s = [step.started_s - start_s for step in steps] + [steps[-1].ended_s - start_s]
        axes.step(edges_s, [*(step.token_count for step in steps), 0], where="post", label=name)
    axes.set_xlabel("seconds since the long request")
    axes.set_ylabel("tokens of the step")
    axes.set_title("One restored history and 22 short requests")
    axes.legend()
    _save(figure, path)


def _figure() -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=_INCHES, layout="constrained")


def _save(figure: "Figure", path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DOTS_PER_INCH)
