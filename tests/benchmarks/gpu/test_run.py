"""The benchmark at its tiniest size, on CPUs: it measures what it promises, and leaves nothing."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.gpu import BENCHMARK
from benchmarks.gpu.device import NoDeviceError, chosen_device
from benchmarks.gpu.run import measure
from benchmarks.gpu.scale import CPU
from tests.support import labs

REHEARSED = ("copies", "decode", "restore")
TINY = replace(
    CPU,
    shapes=CPU.shapes[:1],
    layers_max=2,
    token_counts=(128, 256),
    saved_bytes_max=1 << 26,
    batch_sizes=(8,),
    decode_history_tokens=16,
    decode_cycles=1,
    copied_bytes=1 << 20,
    limit_s=1000.0,
)


def settings(folder: Path, *parts: str) -> Settings:
    return Settings(
        quick=True,
        folder=folder / "scratch",
        seed=1,
        console=Console(file=io.StringIO(), width=200),
        parts=parts,
        device="cpu",
    )


@labs.GPU_REHEARSAL.sizes("count")
def test_parts_measure_what_they_promise(tmp_path: Path, count: int) -> None:
    chosen = settings(tmp_path, *REHEARSED[:count])
    series = measure(chosen, TINY, chosen_device("cpu"))
    found = {one.key: one.value for one in series}
    figures = {one.key for one in series if one.is_figure}
    assert not [key for key in found if key.startswith("left_out")]
    assert figures == set(BENCHMARK.promised(chosen.parts))
    if "restore" in chosen.parts:
        assert found["gpu_tokens_equal"] == 1.0
        for rate in TINY.rates:
            for token_count in TINY.token_counts:
                assert found[f"llama_2_7b_{rate.name}_{token_count}_cake_s"] > 0
    assert list(tmp_path.iterdir()) == []


def test_without_a_gpu_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(NoDeviceError, match="--device cpu rehearses") as caught:
        chosen_device(None)
    assert caught.value.exit_status == 2
