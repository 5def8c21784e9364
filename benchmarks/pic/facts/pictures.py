"""Answers over times, and where attention goes, as pictures.

matplotlib is imported when something is drawn: nothing else of the benchmark needs it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.benchmark import BenchmarkError
from benchmarks.pic.facts.judged import Judged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DOTS_PER_INCH = 110
_COLOURS = {"cacheblend": "C1", "attnlink": "C0", "fixed": "C3", "sink": "C2"}


def plot_pareto(path: Path, judged: Judged) -> None:
    """F1 over the median time to first token, a dot for each way."""
    figure = _figure(8.0, 5.5)
    axes = figure.subplots()
    for way, answers in judged.answers.items():
        time_ms = 1e3 * median(each.ttft_s for each in answers)
        colour = next((one for name, one in _COLOURS.items() if way.startswith(name)), "black")
        axes.plot(time_ms, judged.f1(way), "o", color=colour)
        axes.annotate(
            way, (time_ms, judged.f1(way)), xytext=(4, 3), textcoords="offset points", fontsize=8
        )
    axes.set_xlabel("time to first token, ms")
    axes.set_ylabel("F1")
    axes.set_title("answers of the trained model")
    axes.grid(alpha=0.3)
    _save(figure, path)


def plot_attention(path: Path, maps: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """For each way, the share of a prompt's attention to first tokens, [layers, documents]."""
    figure = _figure(9.0, 4.0)
    panes = figure.subplots(1, len(maps), sharey=True, squeeze=False)[0]
    most = max(share for shares in maps.values() for row in shares for share in row)
    for axes, (way, shares) in zip(panes, maps.items(), strict=True):
        image = axes.imshow(shares, aspect="auto", vmin=0, vmax=most, cmap="viridis")
        axes.set_title(way)
        axes.set_xlabel("document whose first token it is")
        axes.set_yticks(range(len(shares)))
    panes[0].set_ylabel("layer")
    figure.colorbar(image, ax=list(panes), label="share of the prompt's attention")
    _save(figure, path)


def _figure(width: float, height: float) -> "Figure":
    """In inches; raises BenchmarkError where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BenchmarkError(f"the picture needs matplotlib: {error}") from None
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: "Figure", path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DOTS_PER_INCH)
