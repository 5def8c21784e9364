"""Restorations of each model at each rate and length, as far as there is time."""

import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.gpu.cells import CellLab
from benchmarks.gpu.costs import DeviceCosts
from benchmarks.gpu.device import MeasuredDevice, room_of
from benchmarks.gpu.folder_rates import FolderRates, folder_rates
from benchmarks.gpu.found import Cell
from benchmarks.gpu.histories import Histories, StoredDivisions
from benchmarks.gpu.layer_fit import Fit, Room, layers_that_fit, stored_bytes
from benchmarks.gpu.random_weights import random_weights
from benchmarks.gpu.scale import DeviceRate, Scale
from benchmarks.gpu.shapes import LayerShape
from benchmarks.gpu.time_budget import TimeBudget
from benchmarks.gpu.traced_model import TracedModel
from benchmarks.kit.daemon_process import DaemonOptions
from benchmarks.kit.scratch_model import torch_threads
from benchmarks.kit.slow_machine import SlowMachine
from benchmarks.scratch import scratch_folder
from engine_adapters.runner.engine.engine import TOKEN_BUDGET
from engine_adapters.runner.states.state_format import CHUNK_TOKENS
from kvstored.format.geometry import HEADER_BYTES
from kvstored_client import Client

MIB = 1 << 20
DEVICE_BASE_BYTES = 512 * MIB
"""Slabs that are not filled, and what a device keeps for itself."""
SAVED_BYTES_PER_S = 600_000_000
"""What saving is taken to reach, where the folder is faster: a forward and appends."""
RATE_SHARE_MAX = 0.9
"""Of what the folder reads: a throttled rate above that would be the folder's own."""
DRAM_BASE_SLABS = 8


class RestoreLab:
    """All models in turn, each with its share of the time that is left."""

    def __init__(
        self,
        settings: Settings,
        scale: Scale,
        measured: MeasuredDevice,
        budget: TimeBudget,
        *,
        reserved_s: float,
    ) -> None:
        self._settings = settings
        self._scale = scale
        self._measured = measured
        self._budget = budget
        self._reserved_s = reserved_s
        self._generator = settings.random()

    def measure(self) -> Iterator[Cell]:
        """What is found; the rest is written down in the budget. A model that fails ends alone."""
        scale = self._scale
        model_s = scale.needs_s["restore"] / len(scale.shapes)
        for number, shape in enumerate(scale.shapes):
            later_s = self._reserved_s + model_s * (len(scale.shapes) - number - 1)
            try:
                yield from self._model(shape, later_s)
            except Exception as error:
                if not isinstance(error, BenchmarkError):
                    self._settings.console.print_exception()
                self._budget.leave_out(f"restore {shape.name}", f"it failed: {error}")

    def _model(self, shape: LayerShape, later_s: float) -> Iterator[Cell]:
        name, longest = f"restore {shape.name}", self._scale.token_counts[-1]
        with torch_threads(spare_cores=1), scratch_folder(self._settings.folder, 0) as folder:
            rates = folder_rates(folder)
            fit = self._fit(
                shape, room_of(self._measured, folder, saved_bytes=self._saved_bytes(rates))
            )
            if not fit.layer_count:
                self._budget.leave_out(name, f"{fit.limited_by} has no room for one layer")
                return
            self._settings.console.print(_sentence(shape, fit), highlight=False)
            needed = stored_bytes(shape, longest) * fit.layer_count
            if not self._budget.allows(name, needed / SAVED_BYTES_PER_S, reserved_s=later_s):
                return
            config = shape.config(layer_count=fit.layer_count, position_count=longest + 64)
            model = TracedModel(config, random_weights(config, self._measured.device))
            step_tokens = self._scale.step_tokens
            steps = range(CHUNK_TOKENS, min(step_tokens, longest) + 1, CHUNK_TOKENS)
            model.warm_up(steps, stop_position=longest)
            lengths = (self._scale.token_counts[0], longest)
            costs = DeviceCosts.measured(model, lengths, step_tokens=step_tokens)
            histories = self._histories(shape, model, costs)
            machine = SlowMachine(
                self._options(folder, shape, fit.layer_count, histories.division_count),
                restoring_dram_bytes=slab_bytes(shape, fit.layer_count),
                name="gpu",
            )
            yield from self._cells(shape, model, histories, costs, machine, rates, later_s)

    def _histories(self, shape: LayerShape, model: TracedModel, costs: DeviceCosts) -> Histories:
        scale, longest = self._scale, self._scale.token_counts[-1]
        divisions = StoredDivisions.planned(
            {rate.name: costs.at_rate(rate.bytes_per_s) for rate in scale.rates},
            layer_count=model.config.layer_count,
            token_count=longest,
        )
        return Histories(model, _tokens(self._settings, shape, longest), divisions)

    def _saved_bytes(self, rates: FolderRates) -> int:
        """What may be saved of one model: of slow folders less."""
        share = min(1.0, rates.write_bytes_per_s / SAVED_BYTES_PER_S)
        return int(share * self._scale.saved_bytes_max)

    def _cells(
        self,
        shape: LayerShape,
        model: TracedModel,
        histories: Histories,
        costs: DeviceCosts,
        machine: SlowMachine,
        folder: FolderRates,
        later_s: float,
    ) -> Iterator[Cell]:
        scale = self._scale
        with machine.saving() as client:
            histories.save(client)
            for rate in scale.rates:
                if rate.is_dram:
                    yield from self._rate(shape, model, histories, client, rate, costs, later_s)
        for rate in scale.rates:
            if rate.is_dram:
                continue
            limit = RATE_SHARE_MAX * folder.read_bytes_per_s
            if rate.bytes_per_s > limit:
                self._budget.leave_out(
                    f"restore {shape.name} {rate.name}",
                    f"the scratch folder reads {folder.read_bytes_per_s / 1e9:.2f} GB/s",
                )
                continue
            with machine.restoring(rate.bytes_per_s) as device:
                yield from self._rate(shape, model, histories, device.client, rate, costs, later_s)

    def _rate(
        self,
        shape: LayerShape,
        model: TracedModel,
        histories: Histories,
        client: Client,
        rate: DeviceRate,
        costs: DeviceCosts,
        later_s: float,
    ) -> Iterator[Cell]:
        scale = self._scale
        lab = CellLab(
            shape.name,
            model,
            histories,
            client,
            rate,
            costs,
            elsewhere_max=scale.elsewhere_max,
            step_tokens=scale.step_tokens,
        )
        try:
            for token_count in scale.token_counts:
                name = f"restore {shape.name} {rate.name} {token_count}"
                needed_s = lab.needed_s(token_count, scale.rounds)
                if not self._budget.allows(name, needed_s, reserved_s=later_s):
                    continue
                try:
                    lab.warm_up(token_count, self._generator)
                    cell = lab.measure(token_count, rounds=scale.rounds, generator=self._generator)
                except BenchmarkError as error:
                    self._budget.leave_out(name, str(error))
                    continue
                yield cell
        finally:
            lab.close()

    def _fit(self, shape: LayerShape, room: Room) -> Fit:
        fit = layers_that_fit(shape, room, token_count=self._scale.token_counts[-1])
        if fit.layer_count > self._scale.layers_max:
            return Fit(layer_count=self._scale.layers_max, limited_by="the size of the run")
        return fit

    def _options(
        self, folder: Path, shape: LayerShape, layers: int, division_count: int
    ) -> DaemonOptions:
        """The daemon that saves: all that it is given stays in its DRAM, too."""
        slab = slab_bytes(shape, layers)
        chunks = -(-self._scale.token_counts[-1] // CHUNK_TOKENS)
        # At worst each chunk has a slab of its own.
        stored = (chunks + 1) * division_count * slab
        # Chunks that a step begins may take half of DRAM.
        growing = 2 * (TOKEN_BUDGET // CHUNK_TOKENS + 1) * division_count * slab
        return DaemonOptions(
            folder=folder,
            device_bytes=DEVICE_BASE_BYTES + stored,
            dram_bytes=max(stored, growing) + DRAM_BASE_SLABS * slab,
            arena_bytes_max=self._scale.arena_bytes,
            device_count=1,
            slab_bytes=slab,
        )


def slab_bytes(shape: LayerShape, layer_count: int) -> int:
    """Whole MiB with room for a chunk of whichever states are larger, and its header."""
    larger = max(shape.kv_bytes, shape.hidden_bytes)
    return _whole_mib(CHUNK_TOKENS * layer_count * larger + HEADER_BYTES)


def _whole_mib(byte_count: int) -> int:
    return -(-byte_count // MIB) * MIB


def _tokens(settings: Settings, shape: LayerShape, count: int) -> list[int]:
    generator = random.Random(f"{settings.seed} {shape.name}")
    config = shape.config(layer_count=1, position_count=1)
    return [generator.randrange(config.vocab_size) for _ in range(count)]


def _sentence(shape: LayerShape, fit: Fit) -> str:
    why = f", limited by {fit.limited_by}" if fit.limited_by else ""
    return f"{shape.name}: {fit.layer_count} of {shape.layer_count} layers{why}"
