"""Decodes batches whose steps are saved not at all, in two stages and directly, in turn."""

import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.decode.batch import DecodingBatch
from benchmarks.decode.direct import DirectSink
from benchmarks.decode.found import (
    DIRECT,
    MIXED,
    OFF,
    TWO_STAGE,
    VARIANTS,
    Found,
    Steps,
    details_of,
    figures_of,
)
from benchmarks.decode.scale import FULL, QUICK, Scale
from benchmarks.decode.stints import StintSink
from benchmarks.kit.daemon_process import DaemonOptions, served
from benchmarks.kit.scratch_model import scratch_model, torch_threads
from benchmarks.report import Series
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, StateSink
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import CHUNK_TOKENS, StateFormat
from kvstored_client import Client

FIGURES = (
    "tbt_overhead_median_pct",
    "tbt_overhead_p99_pct",
    "tbt_direct_overhead_median_pct",
)
PARTS = {f"batch{size}": FIGURES for size in FULL.batch_sizes}
"""Each batch size alone."""
MIB = 1024 * 1024
DEVICE_BYTES = 1024 * MIB
DRAM_BYTES = 512 * MIB
ARENA_BYTES = 256 * MIB
SCRATCH_BYTES = 4_000_000_000


class _Bench:
    """All batch sizes on one daemon."""

    def __init__(
        self, scale: Scale, model: Model, client: Client, folder: Path, settings: Settings
    ) -> None:
        self._scale = scale
        self._model = model
        self._client = client
        self._folder = folder
        self._settings = settings
        layers = model.config.layer_count
        self._formats = {
            variant: StateFormat.of_model(model, "decode-benchmark", schedule=schedule)
            for variant, schedule in (
                (TWO_STAGE, LayerSchedule.of((Source.HIDDEN, layers))),
                (MIXED, LayerSchedule.of((Source.HIDDEN, layers - 1), (Source.KV, 1))),
            )
        }

    def measure(self, batch_size: int) -> Found:
        """Raises BenchmarkError when a token was not saved."""
        direct = DirectSink(
            self._folder / f"direct{batch_size}",
            batch_size=batch_size,
            layer_count=self._model.config.layer_count,
            chunk_tokens=CHUNK_TOKENS,
        )
        before = self._client.admin.stats().devices
        savers = {
            variant: StateSaver(self._client, state_format)
            for variant, state_format in self._formats.items()
        }
        with closing(direct):
            steps = self._decode(batch_size, {**savers, DIRECT: direct})
            reports = [saver.finish() for saver in savers.values()]
            for saver in savers.values():
                saver.close()
        if dropped_tokens := sum(report.dropped_tokens for report in reports):
            raise BenchmarkError(f"{dropped_tokens} tokens of a batch were not saved")
        pairs = list(zip(self._client.admin.stats().devices, before, strict=True))
        written_bytes = sum(new.written_bytes - old.written_bytes for new, old in pairs)
        requests = sum(new.write_requests - old.write_requests for new, old in pairs)
        saved_tokens = sum(report.saved_tokens for report in reports)
        rows = saved_tokens * self._model.config.layer_count
        # Both write to the same devices.
        saving_s = steps.all_s[TWO_STAGE] + steps.all_s[MIXED]
        rates = {
            "two_stage_rows_per_s": rows / saving_s,
            "two_stage_device_mb_per_s": written_bytes / 1e6 / saving_s,
            "two_stage_device_requests_per_s": requests / saving_s,
            "direct_write_requests_per_s": direct.write_count / steps.all_s[DIRECT],
        }
        return Found(steps, rates)

    def _decode(self, batch_size: int, saving: dict[str, StateSink]) -> Steps:
        scale, found = self._scale, Steps()
        generator = random.Random(f"{self._settings.seed} {batch_size}")
        sink = StintSink(
            {OFF: NullSink(), **saving},
            generator,
            lead_steps=scale.lead_steps,
            steps_max=scale.variant_steps(batch_size),
        )
        batch = DecodingBatch(
            self._model,
            batch_size=batch_size,
            history_tokens=scale.history_tokens,
            sink=sink,
        )
        cycles = scale.cycles_of(batch_size)
        self._settings.console.print(f"batch {batch_size}: {cycles} cycles")
        for cycle in range(scale.lead_cycles + cycles):
            for variant in generator.sample(VARIANTS, len(VARIANTS)):
                sink.show(variant)
                stint_s = [batch.step() for _ in range(scale.stint_steps)]
                found.all_s[variant] += sum(stint_s)
                if cycle >= scale.lead_cycles:
                    found.cycles[variant].append(stint_s[1:])
        batch.end()
        return found


def run(settings: Settings) -> tuple[Series, ...]:
    """The benchmark at its two sizes, or of some batch sizes; raises BenchmarkError."""
    scale = QUICK if settings.quick else FULL
    return measure(settings, chosen(scale, settings.parts))


def chosen(scale: Scale, parts: Sequence[str]) -> Scale:
    """With the batch sizes of these parts, or all; raises BenchmarkError where it has none."""
    sizes = [size for size in scale.batch_sizes if not parts or f"batch{size}" in parts]
    if not sizes:
        raise BenchmarkError(f"quick runs have batches of {QUICK.batch_sizes}, not {parts}")
    return replace(scale, batch_sizes=tuple(sizes))


def measure(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """Measures every batch size."""
    with (
        torch_threads(spare_cores=1),
        scratch_model(settings, scale.shape, scratch_bytes=SCRATCH_BYTES) as (folder, model),
        served(_options(folder), name="decode") as (_, client),
    ):
        bench = _Bench(scale, model, client, folder, settings)
        found = {size: bench.measure(size) for size in scale.batch_sizes}
    return (*figures_of(found), *details_of(found))


def _options(folder: Path) -> DaemonOptions:
    return DaemonOptions(
        folder=folder,
        device_bytes=DEVICE_BYTES,
        dram_bytes=DRAM_BYTES,
        arena_bytes_max=ARENA_BYTES,
    )
