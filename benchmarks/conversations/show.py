"""What was measured beside what the paper says, as tables."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from benchmarks.conversations import paper
from benchmarks.report import Series

_GB = 1e9
_H = 3600.0


def show_turns(console: Console, found: Sequence[Series]) -> None:
    """Figures 14 to 17: ours on this machine and the paper's models, against recomputing."""
    values = {series.key: series.value for series in found}
    table = _table(
        "Figures 14 to 17, against recomputing",
        *("", "TTFT saved %", "prefill tokens/s, x", "GPU time, x", "cost saved %"),
    )
    table.add_row(
        "this machine",
        f"{100 * (1 - values['turns_ours_ttft_s'] / values['turns_recompute_ttft_s']):.0f}",
        f"{values['prefill_tokens_per_s_x']:.1f}",
        f"{values['turns_recompute_gpu_s'] / values['turns_ours_gpu_s']:.1f}",
        f"{100 * cost_saved(values):.0f}",
    )
    for model in paper.MODELS:
        table.add_row(
            f"paper, {model.name}",
            f"{100 * model.ttft_saved:.0f}",
            f"{model.prefill_x:.1f}",
            f"{model.gpu_x:.1f}",
            f"{100 * model.cost_saved:.0f}",
        )
    console.print(table)
    console.print()


def cost_saved(values: dict[str, float]) -> float:
    """Of what recomputing costs by the paper's prices: an engine, DRAM and disks for their time."""
    disk_gb = values["turns_working_set"] * 1e6 / _GB
    hold_per_h = disk_gb / 8 * paper.DRAM_PER_GB_H + disk_gb * paper.DISK_PER_GB_H
    ours = values["turns_ours_gpu_s"] / _H * (paper.GPU_PER_H + hold_per_h)
    return 1 - ours / (values["turns_recompute_gpu_s"] / _H * paper.GPU_PER_H)


def show_histories(console: Console, found: Sequence[Series]) -> None:
    """Figure 18: the time of a turn in three ways."""
    values = {series.key: series.value for series in found}
    table = _table(
        "Figure 18: ms until the first token", "history/new", "recompute", "spans", "layers"
    )
    for key in values:
        words = key.split("_")
        if key.startswith("figure_18") and words[-1] == "recompute":
            stem = key.removesuffix("recompute")
            table.add_row(
                f"{words[2]}/{words[3]}",
                *(f"{1000 * values[stem + way]:.0f}" for way in ("recompute", "spans", "layers")),
            )
    console.print(table)
    console.print()


def show_buffers(console: Console, found: Sequence[Series]) -> None:
    """Figure 19: what each read buffer saves of the time without preloading."""
    values = {series.key: series.value for series in found}
    spans = values["figure_19_spans"]
    published = {"buffer_0": paper.UNBUFFERED_SAVED, "buffer_15": paper.BUFFERED_SAVED}
    table = _table("Figure 19", "read buffer", "ms", "saved %", "paper")
    for key, value in values.items():
        if key.startswith("figure_19"):
            name = key.removeprefix("figure_19_")
            told = published.get(name)
            table.add_row(
                name.replace("_", " "),
                f"{1000 * value:.0f}",
                f"{100 * (1 - value / spans):.0f}",
                "" if told is None else f"{100 * told:.0f}",
            )
    console.print(table)
    console.print()


def _table(title: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table
