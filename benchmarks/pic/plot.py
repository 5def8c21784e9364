"""TTFT over the length of prompts as a picture.

matplotlib is imported when something is drawn: nothing else of the benchmark needs it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.benchmark import BenchmarkError

_INCHES = (9.0, 5.5)
_DOTS_PER_INCH = 110
_STYLES = {"cacheblend": "--", "attnlink": "-"}
_DOTTED = ":"


def plot_ttft(
    path: Path, title: str, lengths: Sequence[int], ttft_s: Mapping[str, Sequence[float]]
) -> None:
    """Draws a line for each method; raises BenchmarkError where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BenchmarkError(f"the picture needs matplotlib: {error}") from None
    figure = Figure(figsize=_INCHES, layout="constrained")
    axes = figure.subplots()
    for number, (name, values) in enumerate(ttft_s.items()):
        style = _STYLES.get(name.rstrip("0123456789"), _DOTTED)
        colour = "black" if name == "full" else f"C{number % 10}"
        axes.plot(lengths, values, style, marker=".", color=colour, label=name, linewidth=1.3)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(list(lengths), [f"{length:,}" for length in lengths])
    axes.set_xlabel("tokens of the prompt")
    axes.set_ylabel("time to first token, s")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    # Beside the lines, in their order at the longest prompt.
    handles, labels = axes.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda one: -ttft_s[labels[one]][-1])
    axes.legend(
        [handles[one] for one in order],
        [labels[one] for one in order],
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=_DOTS_PER_INCH)
