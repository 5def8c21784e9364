"""What saving adds to the steps of decoding batches."""

import random
import statistics
from pathlib import Path

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.decode.batch import DecodingBatch
from benchmarks.decode.stints import StintSink
from benchmarks.gpu.device import MeasuredDevice, room_of
from benchmarks.gpu.layer_fit import on_device_bytes
from benchmarks.gpu.random_weights import random_weights
from benchmarks.gpu.scale import Scale
from benchmarks.gpu.shapes import LayerShape
from benchmarks.kit.daemon_process import DaemonOptions, served
from benchmarks.kit.scratch_model import torch_threads
from benchmarks.report import Series, Summary
from benchmarks.scratch import scratch_folder
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, StateSink
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import CHUNK_TOKENS, StateFormat
from kvstored_client import Client

FIGURES = ("gpu_saving_overhead_pct",)
OFF, HIDDEN, KV = "off", "hidden", "kv"
VARIANTS = {HIDDEN: Source.HIDDEN, KV: Source.KV}
BATCH_MIN = 8
"""The figure is that of batches at least as large, as the target is."""
STINT_STEPS = 9
LEAD_STEPS = 64
SLAB_BYTES = 1 << 27
DEVICE_BYTES, DRAM_BYTES = 7 << 30, 1 << 31
OPEN_CHUNKS = 3
"""For each sequence DRAM has room for so many chunks: one grows, others are written."""
SCRATCH_BYTES = 9_000_000_000
CPU_SHARE = 16
"""A rehearsal has a sixteenth of that room."""


def run(settings: Settings, scale: Scale, measured: MeasuredDevice) -> list[Series]:
    """Overheads of all batch sizes with the first model; raises BenchmarkError."""
    shape = scale.shapes[0]
    share = CPU_SHARE if measured.is_cpu else 1
    with (
        torch_threads(spare_cores=1),
        scratch_folder(settings.folder, SCRATCH_BYTES // share) as folder,
    ):
        model = _model(shape, scale, measured, folder)
        options = DaemonOptions(
            folder=folder,
            device_bytes=DEVICE_BYTES // share,
            dram_bytes=max(
                DRAM_BYTES // share,
                OPEN_CHUNKS * max(scale.batch_sizes) * _chunk_bytes(shape, model),
            ),
            arena_bytes_max=scale.arena_bytes,
            device_count=1,
            slab_bytes=SLAB_BYTES // share,
        )
        with served(options, name="decode") as (_, client):
            found = {
                size: _overheads(settings, scale, model, client, size) for size in scale.batch_sizes
            }
    return series_of(found)


def _chunk_bytes(shape: LayerShape, model: Model) -> int:
    """Of a chunk of each layout."""
    token_bytes = model.config.layer_count * (shape.hidden_bytes + shape.kv_bytes)
    return CHUNK_TOKENS * token_bytes


def _model(shape: LayerShape, scale: Scale, measured: MeasuredDevice, folder: Path) -> Model:
    token_count = scale.decode_history_tokens + 1
    layer_bytes = on_device_bytes(shape, max(scale.batch_sizes) * token_count)
    room = room_of(measured, folder, saved_bytes=0)
    config = shape.config(
        layer_count=min(scale.layers_max, shape.layer_count, room.device_bytes // layer_bytes),
        position_count=token_count,
    )
    return Model(config, random_weights(config, measured.device))


def _overheads(
    settings: Settings, scale: Scale, model: Model, client: Client, batch_size: int
) -> dict[str, tuple[float, ...]]:
    """Milliseconds of a step of each variant, one sample for each cycle."""
    layers = model.config.layer_count
    savers = {
        name: StateSaver(
            client,
            StateFormat.of_model(
                model, f"gpu decode {name}", schedule=LayerSchedule.of((source, layers))
            ),
            device=model.device,
        )
        for name, source in VARIANTS.items()
    }
    lead_cycles = -(-LEAD_STEPS // STINT_STEPS)
    cycles = lead_cycles + scale.decode_cycles
    generator = random.Random(f"{settings.seed} {batch_size}")
    sinks: dict[str, StateSink] = {OFF: NullSink(), **savers}
    sink = StintSink(sinks, generator, lead_steps=LEAD_STEPS, steps_max=cycles * STINT_STEPS)
    batch = DecodingBatch(
        model, batch_size=batch_size, history_tokens=scale.decode_history_tokens, sink=sink
    )
    found: dict[str, list[float]] = {name: [] for name in sinks}
    for cycle in range(cycles):
        for name in generator.sample(list(sinks), len(sinks)):
            sink.show(name)
            steps_s = [batch.step() for _ in range(STINT_STEPS)]
            if cycle >= lead_cycles:
                # The mean: of steps that leave together the last one pays for all.
                found[name].append(1000 * statistics.fmean(steps_s[1:]))
    batch.end()
    for saver in savers.values():
        dropped = saver.finish().dropped_tokens
        saver.close()
        if dropped:
            raise BenchmarkError(f"{dropped} tokens of a batch of {batch_size} were not saved")
    return {name: tuple(values) for name, values in found.items()}


def series_of(found: dict[int, dict[str, tuple[float, ...]]]) -> list[Series]:
    """Steps and overheads of each batch size; the worst median of large batches counts."""
    details, medians = [], []
    for size, steps in found.items():
        details.append(Series(key=f"batch{size}_{OFF}_ms", unit="ms", samples=steps[OFF]))
        for name in VARIANTS:
            over = tuple(
                100 * (ours / off - 1) for ours, off in zip(steps[name], steps[OFF], strict=True)
            )
            details.append(Series(key=f"batch{size}_{name}_ms", unit="ms", samples=steps[name]))
            details.append(Series(key=f"batch{size}_{name}_overhead_pct", unit="%", samples=over))
            if size >= BATCH_MIN:
                medians.append(statistics.median(over))
    figure = Series(
        key=FIGURES[0], unit="%", samples=tuple(medians), summary=Summary.MOST, is_figure=True
    )
    return [figure, *details]
