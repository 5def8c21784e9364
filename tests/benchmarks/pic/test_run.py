"""The benchmark at a tiny size: it measures what it promises, and leaves nothing behind."""

import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.benchmark import Settings
from benchmarks.interleave import Rounds
from benchmarks.kit.daemon_process import DaemonOptions
from benchmarks.pic import BENCHMARK
from benchmarks.pic.figures import FIGURES
from benchmarks.pic.run import measure, run
from benchmarks.pic.scale import FULL, METHODS, OF_FIGURES, QUICK, Scale
from benchmarks.report import Series
from benchmarks.scratch import SCRATCH_BYTES_MAX
from engine_adapters.link.method import LinkMethod
from engine_adapters.runner.model.random_model import RandomModelShape
from tests.support import scale

TINY = Scale(
    shape=RandomModelShape(
        vocab_size=512,
        hidden_size=768,
        intermediate_size=64,
        layer_count=2,
        head_count=4,
        kv_head_count=4,
        position_count=1024,
    ),
    lengths=(512, 640, 768),
    rounds=Rounds(count=1, count_min=1, time_limit_s=1.0),
    libraries=1,
    methods=("full", "cacheblend15", "attnlink16", "sink", "query16"),
    entry_tokens=128,
    question_tokens=16,
    # A chunk is nearly a slab: DRAM holds three of the eight of the shortest prompt.
    slab_bytes=1024 * 1024,
    cold_dram_bytes=4 * 1024 * 1024,
    warm_dram_bytes=64 * 1024 * 1024,
    device_bytes=256 * 1024 * 1024,
    scratch_bytes=1_000_000_000,
)


def test_every_method_has_a_name_of_linking() -> None:
    for name in METHODS.values():
        assert str(LinkMethod.named(name)) == name
    for size in (FULL, QUICK):
        assert size.shape.position_count > max(size.lengths)
        # The states of the shortest prompt exceed the DRAM of the cold daemon.
        token_bytes = 2 * 4 * size.shape.layer_count * size.shape.hidden_size
        assert min(size.lengths) * token_bytes > size.cold_dram_bytes


def test_the_full_benchmark_wanted_more_room_than_any_may_have() -> None:
    """Two daemons with two devices each, which hold all entries with a sink and without."""
    for size in (FULL, QUICK):
        token_bytes = 2 * 4 * size.shape.layer_count * size.shape.hidden_size
        options = DaemonOptions(
            folder=Path(), device_bytes=size.device_bytes, dram_bytes=1, arena_bytes_max=1
        )
        room_bytes = options.device_count * size.device_bytes
        assert 2 * max(size.lengths) * token_bytes < 0.75 * room_bytes
        assert 2 * room_bytes < size.scratch_bytes <= SCRATCH_BYTES_MAX


@scale.at(scale.Scale.QUICK)
def test_all_figures_and_nothing_left(tmp_path: Path) -> None:
    output = io.StringIO()
    settings = Settings(
        quick=True,
        folder=tmp_path / "scratch",
        seed=1,
        console=Console(file=output, width=200),
        plots=tmp_path / "plots",
    )
    series = {one.key: one for one in measure(settings, TINY, picture="times.png")}
    assert {key for key, one in series.items() if one.is_figure} == set(FIGURES)
    assert series["tokens_equal"].value == 1.0
    assert series["steps_per_link"].value == 1.0
    assert series["attnlink16_cold_512_ttft_s"].value > 0
    assert "full_cold_512_ttft_s" not in series
    assert (tmp_path / "plots" / "times.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["plots"]


def test_both_parts_have_all_figures_together() -> None:
    assert {*BENCHMARK.promised(())} == {*BENCHMARK.promised(("times", "answers"))}
    assert set(FIGURES) == set(BENCHMARK.promised(("times",)))
    assert "f1_full" in BENCHMARK.promised(("answers",))


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((), ["measure", "keep", "judge", "keep", "tell"]),
        (("times",), ["measure", "keep"]),
        (("answers",), ["judge", "keep", "tell"]),
    ],
)
def test_only_what_was_chosen_runs_and_what_was_measured_is_kept(
    parts: tuple[str, ...], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    class NoJudged:
        def series(self) -> tuple[Series, ...]:
            return ()

    def called(name: str, result: object) -> Callable[..., object]:
        def call(*arguments: object, **_: object) -> object:
            calls.append(name)
            return result

        return call

    # The package has a function of this name.
    module = sys.modules["benchmarks.pic.run"]
    monkeypatch.setattr(module, "measure", called("measure", ()))
    monkeypatch.setattr(module, "judge", called("judge", NoJudged()))
    monkeypatch.setattr(module, "tell", called("tell", ()))

    def keep(series: Sequence[Series]) -> None:
        calls.append("keep")

    settings = Settings(
        quick=True, folder=Path(), seed=1, console=Console(), parts=parts, keep=keep
    )
    assert run(settings) == ()
    assert calls == expected


def test_lengths_are_measured_by_few_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[tuple[Scale, str]] = []

    def kept(_: Settings, scale: Scale, *, picture: str) -> tuple[Series, ...]:
        measured.append((scale, picture))
        return ()

    monkeypatch.setattr(sys.modules["benchmarks.pic.run"], "measure", kept)
    for parts in (("lengths",), ("times",), ("lengths", "times")):
        run(Settings(quick=True, folder=Path(), seed=1, console=Console(), parts=parts))
    few = replace(QUICK, methods=OF_FIGURES)
    whole = (QUICK, "pic_times.png")
    assert measured == [(few, "pic_lengths.png"), whole, whole]
