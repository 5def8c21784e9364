import io

import pytest
from rich.console import Console

from benchmarks.conversations import paper
from benchmarks.conversations.show import cost_saved, show_buffers, show_histories
from benchmarks.report import Series


def shown(show: object, values: dict[str, float]) -> str:
    text = io.StringIO()
    series = [Series(key=key, unit="s", samples=(value,)) for key, value in values.items()]
    assert callable(show)
    show(Console(file=text, width=120), series)
    return text.getvalue()


def test_a_buffer_is_shown_by_what_it_saves_beside_the_paper() -> None:
    text = shown(show_buffers, {"figure_19_spans": 0.2, "figure_19_buffer_15": 0.1})
    row = next(line for line in text.splitlines() if "buffer 15" in line)
    assert row.split() == ["buffer", "15", "100", "50", f"{100 * paper.BUFFERED_SAVED:.0f}"]


def test_histories_are_shown_in_three_ways() -> None:
    stem = "figure_18_900_100"
    values = {f"{stem}_recompute": 1.0, f"{stem}_spans": 0.3, f"{stem}_layers": 0.2}
    text = shown(show_histories, values)
    assert text.splitlines()[-2].split() == ["900/100", "1000", "300", "200"]


def test_a_cost_is_that_of_an_engine_and_of_what_it_holds() -> None:
    values = {"turns_working_set": 0.0, "turns_ours_gpu_s": 1.0, "turns_recompute_gpu_s": 4.0}
    assert cost_saved(values) == pytest.approx(0.75)
    # 8 TB on disks and 1 TB in DRAM cost nearly twice what the engine does.
    held = {**values, "turns_working_set": 8e6}
    per_h = 1000 * paper.DRAM_PER_GB_H + 8000 * paper.DISK_PER_GB_H
    assert cost_saved(held) == pytest.approx(1 - (5.0 + per_h) / 5.0 / 4)


def test_the_paper_loads_longer_than_it_computes() -> None:
    """Its buffer of 15 of 40 layers then is as large as S_buf."""
    s_buf_layers = 40 * (1 - 1 / paper.LOAD_OVER_PREFILL)
    assert s_buf_layers == pytest.approx(15, abs=1)
