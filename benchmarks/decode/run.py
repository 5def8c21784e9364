"""Decodes batches whose steps are saved not at all, in two stages and directly, in turn."""

import random
import statistics
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.daemon_process import DaemonOptions, DaemonProcess
from benchmarks.decode.batch import DecodingBatch
from benchmarks.decode.direct import DirectSink
from benchmarks.decode.scale import FULL, QUICK, Scale
from benchmarks.decode.turns import TurnSink
from benchmarks.document import TOKENIZER_BYTES, corpus
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
OFF, TWO_STAGE, DIRECT = "off", "two_stage", "direct"
VARIANTS = (OFF, TWO_STAGE, DIRECT)
SAVING = (TWO_STAGE, DIRECT)
MIB = 1024 * 1024
DEVICE_BYTES = 1024 * MIB
DRAM_BYTES = 512 * MIB
ARENA_BYTES = 256 * MIB
SCRATCH_BYTES = 4_000_000_000
P99_CUTS = 100


@dataclass(slots=True)
class _Steps:
    """Seconds of the measured steps of one batch: by variant, one list for each cycle.

    ``all_s`` has the sum over all steps of a variant, measured or not.
    """

    cycles: dict[str, list[list[float]]] = field(
        default_factory=lambda: {name: [] for name in VARIANTS}
    )
    all_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(VARIANTS, 0.0))

    def medians_s(self, variant: str) -> list[float]:
        """Of each cycle."""
        return [statistics.median(cycle) for cycle in self.cycles[variant]]

    def relative(self, variant: str) -> list[float]:
        """All steps, in medians of the steps that are not saved."""
        unit_s = statistics.median(self.medians_s(OFF))
        return [step / unit_s for cycle in self.cycles[variant] for step in cycle]

    def overheads_pct(self, variant: str) -> tuple[float, ...]:
        """Of each cycle, over the steps of the same cycle that are not saved."""
        pairs = zip(self.medians_s(variant), self.medians_s(OFF), strict=True)
        return tuple(100 * (ours / off - 1) for ours, off in pairs)


@dataclass(frozen=True, slots=True)
class _Found:
    """One batch size: its steps, and what moved."""

    steps: _Steps
    rates: Mapping[str, float]


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
        self._format = StateFormat.of_model(
            model, "decode-benchmark", schedule=LayerSchedule((Source.HIDDEN,) * layers)
        )

    def measure(self, batch_size: int) -> _Found:
        """Raises BenchmarkError when a token was not saved."""
        direct = DirectSink(
            self._folder / f"direct{batch_size}",
            batch_size=batch_size,
            layer_count=self._model.config.layer_count,
            chunk_tokens=CHUNK_TOKENS,
        )
        before = self._client.admin.stats().devices
        saver = StateSaver(self._client, self._format)
        with closing(direct):
            steps = self._decode(batch_size, saver, direct)
            report = saver.finish()
            saver.close()
        if report.dropped_tokens:
            raise BenchmarkError(f"{report.dropped_tokens} tokens of a batch were not saved")
        pairs = list(zip(self._client.admin.stats().devices, before, strict=True))
        written_bytes = sum(new.written_bytes - old.written_bytes for new, old in pairs)
        requests = sum(new.write_requests - old.write_requests for new, old in pairs)
        rows = report.saved_tokens * self._model.config.layer_count
        saving_s = steps.all_s[TWO_STAGE]
        rates = {
            "two_stage_rows_per_s": rows / saving_s,
            "two_stage_device_mb_per_s": written_bytes / 1e6 / saving_s,
            "two_stage_device_requests_per_s": requests / saving_s,
            "direct_write_requests_per_s": direct.write_count / steps.all_s[DIRECT],
        }
        return _Found(steps, rates)

    def _decode(self, batch_size: int, saver: StateSaver, direct: DirectSink) -> _Steps:
        scale, found = self._scale, _Steps()
        generator = random.Random(f"{self._settings.seed} {batch_size}")
        sink = TurnSink(
            {OFF: NullSink(), TWO_STAGE: saver, DIRECT: direct},
            generator,
            lead_steps=scale.lead_steps,
            steps_max=scale.variant_steps,
        )
        batch = DecodingBatch(
            self._model,
            batch_size=batch_size,
            history_tokens=scale.history_tokens,
            steps=len(VARIANTS) * scale.variant_steps,
            sink=sink,
        )
        self._settings.console.print(f"batch {batch_size}: {scale.cycles} cycles")
        for cycle in range(scale.lead_cycles + scale.cycles):
            for variant in generator.sample(VARIANTS, len(VARIANTS)):
                sink.show(variant)
                turn_s = [batch.step() for _ in range(scale.turn_steps)]
                found.all_s[variant] += sum(turn_s)
                if cycle >= scale.lead_cycles:
                    found.cycles[variant].append(turn_s[1:])
        assert batch.is_over
        return found


def run(settings: Settings) -> tuple[Series, ...]:
    """The benchmark at its two sizes."""
    return measure(settings, QUICK if settings.quick else FULL)


def measure(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """Measures every batch size."""
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
    return (*_figures(found), *_details(found))


def _figures(found: dict[int, _Found]) -> list[Series]:
    """Medians are those of the worst batch size; the p99 is that of all steps together.

    One batch size has too few steps for a p99, of which others' work on the machine is most.
    """
    relative = {
        variant: [step for one in found.values() for step in one.steps.relative(variant)]
        for variant in (OFF, TWO_STAGE)
    }
    medians = {
        variant: tuple(
            statistics.median(one.steps.overheads_pct(variant)) for one in found.values()
        )
        for variant in SAVING
    }
    p99_pct = 100 * (_p99(relative[TWO_STAGE]) / _p99(relative[OFF]) - 1)
    figures = {
        "tbt_overhead_median_pct": medians[TWO_STAGE],
        "tbt_overhead_p99_pct": (p99_pct,),
        "tbt_direct_overhead_median_pct": medians[DIRECT],
    }
    return [
        Series(key=key, unit="%", samples=values, summary=Summary.MOST, is_figure=True)
        for key, values in figures.items()
    ]


def _details(found: dict[int, _Found]) -> list[Series]:
    result = []
    for size, one in found.items():
        steps = one.steps
        for variant in VARIANTS:
            medians_ms = tuple(1000 * median_s for median_s in steps.medians_s(variant))
            result.append(Series(key=f"batch{size}_{variant}_ms", unit="ms", samples=medians_ms))
        off_p99 = _p99(steps.relative(OFF))
        for variant in SAVING:
            slow = _p99(steps.relative(variant)) / off_p99
            overheads = {
                "overhead_pct": steps.overheads_pct(variant),
                "overhead_p99_pct": (100 * (slow - 1),),
            }
            result += [
                Series(key=f"batch{size}_{variant}_{name}", unit="%", samples=samples)
                for name, samples in overheads.items()
            ]
        result += [
            Series(
                key=f"batch{size}_{name}",
                unit="MB/s" if "mb_per_s" in name else "1/s",
                samples=(rate,),
            )
            for name, rate in one.rates.items()
        ]
    return result


def _p99(durations: list[float]) -> float:
    return statistics.quantiles(durations, n=P99_CUTS)[-1]
