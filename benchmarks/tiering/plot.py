"""Hits over capacity as a picture.

matplotlib is imported when something is drawn: nothing else of the benchmark needs it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.benchmark import BenchmarkError

_INCHES = (9.0, 5.0)
_DOTS_PER_INCH = 110
_COLOURS = (*(f"C{number}" for number in range(10)), "black", "gold")


def plot_hits(
    path: Path, title: str, capacities: Sequence[int], hits: Mapping[str, Sequence[float]]
) -> None:
    """Draws a line for each policy; raises BenchmarkError where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BenchmarkError(f"the pictures need matplotlib: {error}") from None
    figure = Figure(figsize=_INCHES, layout="constrained")
    axes = figure.subplots()
    for number, (name, values) in enumerate(hits.items()):
        style = "--" if name == "belady" else ".:" if name.startswith("look-ahead") else ".-"
        axes.plot(
            capacities,
            values,
            style,
            color=_COLOURS[number % len(_COLOURS)],
            label=name,
            linewidth=1.2,
        )
    axes.set_xscale("log", base=2)
    axes.set_xlabel("capacity, blocks of 512 tokens")
    axes.set_ylabel("blocks found, % of all asked for")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DOTS_PER_INCH)
