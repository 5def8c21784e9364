"""What a person reads of a run."""

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from benchmarks.gpu.found import Cell
from benchmarks.gpu.scale import FULL
from benchmarks.gpu.show import show_all
from benchmarks.gpu.targets import verdicts
from benchmarks.gpu.time_budget import LeftOut
from tests.benchmarks.gpu.test_found import cell


@pytest.mark.parametrize("cells", [[cell(), cell(rate="dram")], []])
def test_nothing_is_cut_and_what_was_left_out_is_named(cells: Sequence[Cell]) -> None:
    """However narrow the terminal is."""
    file = io.StringIO()
    show_all(
        Console(file=file, width=80),
        "a GPU",
        FULL.rates,
        cells,
        verdicts({"gpu_tokens_equal": 1.0}),
        [LeftOut(name="restore opt_13b", why="no time")],
        is_rehearsal=False,
    )
    text = file.getvalue()
    assert "\u2026" not in text
    assert "left out: restore opt_13b: no time" in text
    assert "gpu_tokens_equal" in text
    assert ("llama_2_7b, 8 layers" in text) is bool(cells)
    for printed in ("1.7-2.6", "1.33-1.81", "2.4\\1.75 at 32 Gbps", "1.100"):
        assert (printed in text) is bool(cells)
