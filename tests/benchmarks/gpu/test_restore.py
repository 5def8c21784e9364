"""A model that fails costs nothing but itself."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.gpu.device import chosen_device
from benchmarks.gpu.found import Cell
from benchmarks.gpu.restore import RestoreLab, slab_bytes
from benchmarks.gpu.scale import CPU
from benchmarks.gpu.shapes import LLAMA_2_7B, LLAMA_3_8B, LayerShape
from benchmarks.gpu.time_budget import TimeBudget
from kvstored.format.geometry import HEADER_BYTES
from tests.benchmarks.gpu.test_found import cell


def test_what_was_found_before_and_after_a_failure_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(lab: RestoreLab, shape: LayerShape, later_s: float) -> Iterator[Cell]:
        del lab
        yield cell(model=shape.name)
        if shape.name == "llama_3_8b":
            raise RuntimeError("CUDA out of memory")
        yield cell(model=shape.name, rate=f"{later_s:g}")

    monkeypatch.setattr(RestoreLab, "_model", found)
    settings = Settings(
        quick=True, folder=tmp_path, seed=1, console=Console(file=io.StringIO()), device="cpu"
    )
    budget = TimeBudget(limit_s=100.0, clock=lambda: 0.0)
    lab = RestoreLab(settings, CPU, chosen_device("cpu"), budget, reserved_s=30.0)
    cells = list(lab.measure())
    names = ["llama_2_7b", "llama_2_7b", "llama_3_8b", "opt_13b", "opt_13b"]
    assert [one.model for one in cells] == names
    # Two models later have their share of the time reserved, and then none.
    share = CPU.needs_s["restore"] / 3
    assert (cells[1].rate, cells[4].rate) == (f"{30 + 2 * share:g}", "30")
    (left_out,) = budget.left_out
    assert (left_out.name, left_out.why) == ("restore llama_3_8b", "it failed: CUDA out of memory")


@pytest.mark.parametrize("shape", [LLAMA_2_7B, LLAMA_3_8B])
def test_a_slab_has_room_for_a_chunk_of_the_larger_states(shape: LayerShape) -> None:
    """64 tokens of three layers, and the header."""
    needed = 64 * 3 * max(shape.kv_bytes, shape.hidden_bytes) + HEADER_BYTES
    assert needed <= slab_bytes(shape, 3) < needed + (1 << 20)
