"""One setting: all modes in turn with the costs that bound them."""

import random
import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.benchmark import Settings
from benchmarks.interleave import Alternative, Measured, interleave
from benchmarks.restore.measured.machine import SettingMachine
from benchmarks.restore.measured.modes import READ_SOURCES, ModeRunner
from benchmarks.restore.measured.scale import MeasuredSetting, Scale
from engine_adapters.restore import (
    LAYER_MODES,
    LayerCosts,
    Mode,
    Source,
    best_bound_s,
    schedule_for,
)
from engine_adapters.runner.model import Model
from kvstored_client import Client

Samples = Mapping[str, tuple[float, ...]]


class SettingLab:
    """Measures one setting in a folder of its own."""

    def __init__(
        self,
        setting: MeasuredSetting,
        scale: Scale,
        model: Model,
        folder: Path,
        settings: Settings,
    ) -> None:
        self._setting = setting
        self._machine = SettingMachine(setting, model, folder)
        self._scale = scale
        self._model = model
        self._settings = settings
        self._history = history_of(setting, model, settings)
        self._layers = model.config.layer_count

    def measure(self) -> dict[str, tuple[float, ...]]:
        """Samples by key, one for each round: seconds of modes and bound, and whether equal."""
        machine = self._machine
        project_s, compute_s = machine.computing()
        bytes_per_s = machine.bytes_per_s(project_s)
        costs = machine.nominal_costs(bytes_per_s, project_s=project_s, compute_s=compute_s)
        schedules = {mode: schedule_for(mode, costs, self._layers) for mode in LAYER_MODES}
        planned = ", ".join(f"{mode} {schedule}" for mode, schedule in schedules.items())
        self._settings.console.print(f"{self._setting.name}: {planned}")
        runner = ModeRunner(self._model, self._history, schedules)
        with machine.saving() as client:
            runner.save(client)
        with machine.restoring(bytes_per_s) as (client, restart):
            samples = self._interleaved(client, restart, runner)
            plain = runner.continuation(client, Mode.RECOMPUTE)
            equal = [runner.continuation(client, mode) == plain for mode in LAYER_MODES]
        rate = bytes_per_s / 1e6
        return {
            **samples,
            "tokens_equal": (float(all(equal)),),
            "device_mb_per_s_max": (rate,),
            "device_rate_reached": tuple(
                machine.hidden_bytes / read_s / bytes_per_s for read_s in samples["io_hidden_s"]
            ),
        }

    def _interleaved(
        self, client: Client, restart: Callable[[], None], runner: ModeRunner
    ) -> dict[str, tuple[float, ...]]:
        def restore(mode: Mode) -> Measured:
            return {f"{mode}_s": runner.restore(client, mode)}

        def read(source: Source) -> Measured:
            return {f"io_{source}_s": runner.read(client, source)}

        group = [Alternative(run=partial(restore, mode)) for mode in LAYER_MODES]
        group += [Alternative(run=partial(read, source)) for source in READ_SOURCES]
        group += [Alternative(run=self._compute)]

        def announce(text: str) -> None:
            self._settings.console.print(f"{self._setting.name}: {text}")

        samples = interleave(
            [group],
            rounds=self._scale.rounds,
            generator=self._settings.random(),
            announce=announce,
            # Nothing is read twice in one round.
            prepare=restart,
        )
        bounds = [
            best_bound_s(
                LayerCosts(io_hidden_s=hidden, io_kv_s=kv, compute_s=compute, project_s=project),
                self._layers,
            )
            for hidden, kv, compute, project in zip(
                *(samples[f"{name}_s"] for name in ("io_hidden", "io_kv", "compute", "project")),
                strict=True,
            )
        ]
        return {**samples, "bound_s": tuple(bounds)}

    def _compute(self) -> Measured:
        project_s, compute_s = self._machine.computing()
        return {"project_s": project_s, "compute_s": compute_s}


def median_ratio(ours: tuple[float, ...], others: tuple[float, ...]) -> float:
    """Median of the ratios of each round."""
    return statistics.median(our / other for our, other in zip(ours, others, strict=True))


def history_of(setting: MeasuredSetting, model: Model, settings: Settings) -> list[int]:
    """Tokens that the seed and the setting decide."""
    generator = random.Random(f"{settings.seed} {setting.name}")
    vocabulary = model.config.vocab_size
    return [generator.randrange(vocabulary) for _ in range(setting.token_count)]
