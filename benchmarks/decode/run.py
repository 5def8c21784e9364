"""Decodes batches in turn without saving, with two-stage saving and with direct writes."""

import random
import statistics
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.daemon_process import DaemonOptions, DaemonProcess
from benchmarks.decode.batch import DecodingBatch
from benchmarks.decode.block import BlockSink
from benchmarks.decode.direct import DirectSink
from benchmarks.decode.scale import FULL, QUICK, Scale
from benchmarks.document import TOKENIZER_BYTES, corpus
from benchmarks.interleave import Alternative, Measured, interleave
from benchmarks.report import Series, Summary
from benchmarks.scratch import scratch_folder
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.model import Model
from engine_adapters.runner.random_model import write_random_model
from engine_adapters.runner.saver import StateSaver
from engine_adapters.runner.state_format import CHUNK_TOKENS, StateFormat
from engine_adapters.runner.step import NullSink
from kvstored_client import Client

FIGURES = (
    "tbt_overhead_median_pct",
    "tbt_overhead_p99_pct",
    "tbt_direct_overhead_median_pct",
)
MIB = 1024 * 1024
DEVICE_BYTES = 1024 * MIB
DRAM_BYTES = 512 * MIB
ARENA_BYTES = 256 * MIB
SCRATCH_BYTES = 4_000_000_000
P99_CUTS = 100


@dataclass(slots=True)
class _Steps:
    """Seconds of all measured steps by how they saved; of one batch size."""

    off: list[float] = field(default_factory=list)
    two_stage: list[float] = field(default_factory=list)
    direct: list[float] = field(default_factory=list)


class _Bench:
    """One batch size on one daemon."""

    def __init__(
        self, scale: Scale, model: Model, client: Client, folder: Path, settings: Settings
    ) -> None:
        self._scale = scale
        self._model = model
        self._client = client
        self._folder = folder
        self._settings = settings
        layers = model.config.layer_count
        self._format = StateFormat.of_model(
            model, "decode-benchmark", schedule=LayerSchedule((Source.HIDDEN,) * layers)
        )

    def measure(self, batch_size: int) -> dict[str, tuple[float, ...]]:
        """Samples of one batch size: one of each key for each round."""
        scale, steps = self._scale, _Steps()
        generator = random.Random(f"{self._settings.seed} {batch_size}")
        sink = BlockSink(generator, lead_steps=scale.lead_steps)
        batch = DecodingBatch(
            self._model,
            batch_size=batch_size,
            history_tokens=scale.history_tokens,
            steps_max=scale.lead_steps + scale.measured_steps,
            sink=sink,
        )
        direct = DirectSink(
            self._folder / f"direct{batch_size}",
            batch_size=batch_size,
            layer_count=self._model.config.layer_count,
            chunk_tokens=CHUNK_TOKENS,
        )
        try:
            group = [
                Alternative(run=partial(self._off, batch, sink, steps)),
                Alternative(run=partial(self._two_stage, batch, sink, steps)),
                Alternative(run=partial(self._direct, batch, sink, steps, direct)),
            ]
            samples = interleave(
                [group],
                rounds=scale.rounds,
                generator=generator,
                announce=lambda text: self._settings.console.print(f"batch {batch_size}: {text}"),
            )
        finally:
            direct.close()
        count = scale.rounds.count * scale.measured_steps
        for name in ("two_stage", "direct"):
            # The first round is not counted.
            slow = _p99(getattr(steps, name)[-count:]) / _p99(steps.off[-count:])
            samples[f"{name}_overhead_p99_pct"] = (100 * (slow - 1),)
            ratios = zip(samples[f"{name}_ms"], samples["off_ms"], strict=True)
            samples[f"{name}_overhead_pct"] = tuple(100 * (ours / off - 1) for ours, off in ratios)
        return samples

    def _off(self, batch: DecodingBatch, sink: BlockSink, steps: _Steps) -> Measured:
        return {"off_ms": self._decode(batch, sink, NullSink(), steps.off)}

    def _direct(
        self, batch: DecodingBatch, sink: BlockSink, steps: _Steps, direct: DirectSink
    ) -> Measured:
        before = direct.write_count
        took_ms = self._decode(batch, sink, direct, steps.direct)
        seconds = sum(steps.direct[-self._scale.measured_steps :])
        share = self._scale.measured_steps / (self._scale.lead_steps + self._scale.measured_steps)
        return {
            "direct_ms": took_ms,
            "direct_write_requests_per_s": (direct.write_count - before) * share / seconds,
        }

    def _two_stage(self, batch: DecodingBatch, sink: BlockSink, steps: _Steps) -> Measured:
        saver = StateSaver(self._client, self._format)
        before = self._client.admin.stats().devices
        took_ms = self._decode(batch, sink, saver, steps.two_stage)
        report = saver.finish()
        saver.close()
        if report.dropped_tokens:
            raise BenchmarkError(f"{report.dropped_tokens} tokens of a block were not saved")
        after = self._client.admin.stats().devices
        seconds = took_ms / 1000 * (self._scale.lead_steps + self._scale.measured_steps)
        pairs = list(zip(after, before, strict=True))
        written_bytes = sum(new.written_bytes - old.written_bytes for new, old in pairs)
        requests = sum(new.write_requests - old.write_requests for new, old in pairs)
        rows = report.saved_tokens * self._model.config.layer_count
        return {
            "two_stage_ms": took_ms,
            "two_stage_rows_per_s": rows / seconds,
            "two_stage_device_mb_per_s": written_bytes / 1e6 / seconds,
            "two_stage_device_requests_per_s": requests / seconds,
        }

    def _decode(
        self,
        batch: DecodingBatch,
        sink: BlockSink,
        inner: "NullSink | StateSaver | DirectSink",
        steps: list[float],
    ) -> float:
        """Median milliseconds of the measured steps, which are added to ``steps``."""
        count = self._scale.lead_steps + self._scale.measured_steps
        sink.begin_block(inner, steps=count)
        measured = batch.decode(count)[-self._scale.measured_steps :]
        steps.extend(measured)
        return 1000 * statistics.median(measured)


def run(settings: Settings) -> tuple[Series, ...]:
    """The benchmark at its two sizes."""
    return measure(settings, QUICK if settings.quick else FULL)


def measure(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """Measures every batch size; the figures are those of the worst one."""
    threads = torch.get_num_threads()
    with ExitStack() as stack:
        stack.callback(torch.set_num_threads, threads)
        # A core stays free for the daemon, as beside an engine that computes on a GPU.
        torch.set_num_threads(max(1, threads - 1))
        folder = stack.enter_context(scratch_folder(settings.folder, SCRATCH_BYTES))
        write_random_model(folder / "model", scale.shape, [corpus()[:TOKENIZER_BYTES]])
        model = Model.from_directory(folder / "model")
        daemon = stack.enter_context(
            DaemonProcess(
                DaemonOptions(
                    folder=folder,
                    device_bytes=DEVICE_BYTES,
                    dram_bytes=DRAM_BYTES,
                    arena_bytes_max=ARENA_BYTES,
                )
            )
        )
        client = stack.enter_context(
            Client(str(daemon.options.socket), arena_bytes=str(ARENA_BYTES), name="decode")
        )
        bench = _Bench(scale, model, client, folder, settings)
        found = {size: bench.measure(size) for size in scale.batch_sizes}
    return _series(found)


def _series(found: dict[int, dict[str, tuple[float, ...]]]) -> tuple[Series, ...]:
    def worst(key: str) -> tuple[float, ...]:
        return tuple(statistics.median(samples[key]) for samples in found.values())

    figures = {
        "tbt_overhead_median_pct": worst("two_stage_overhead_pct"),
        "tbt_overhead_p99_pct": worst("two_stage_overhead_p99_pct"),
        "tbt_direct_overhead_median_pct": worst("direct_overhead_pct"),
    }
    result = [
        Series(key=key, unit="%", samples=values, summary=Summary.MOST, is_figure=True)
        for key, values in figures.items()
    ]
    for size, samples in found.items():
        for key, values in samples.items():
            unit = {"_ms": "ms", "pct": "%"}.get(key[-3:], "1/s")
            unit = "MB/s" if "mb_per_s" in key else unit
            result.append(Series(key=f"batch{size}_{key}", unit=unit, samples=values))
    return tuple(result)


def _p99(durations_s: list[float]) -> float:
    return statistics.quantiles(durations_s, n=P99_CUTS)[-1]
