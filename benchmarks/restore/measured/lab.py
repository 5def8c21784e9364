"""One setting: all modes in turn with the costs that bound them."""

import random
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.benchmark import Settings
from benchmarks.core_split import CoreSplit
from benchmarks.interleave import Alternative, Measured, interleave
from benchmarks.kit.slow_machine import SlowDevice
from benchmarks.restore.measured.beside import BesideCosts, beside
from benchmarks.restore.measured.found import Found, rounds_of
from benchmarks.restore.measured.machine import SettingMachine
from benchmarks.restore.measured.modes import READ_SOURCES, ModeRunner
from benchmarks.restore.measured.restored_layers import RestoredLayers
from benchmarks.restore.measured.scale import MeasuredSetting, Scale
from engine_adapters.restore import (
    LAYER_MODES,
    LayerCosts,
    Mode,
    Source,
    schedule_for,
    storing_schedule,
    with_faster_reads,
)
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import SPAN_TOKENS
from kvstored_client import Client

STORING_MODES = tuple(mode for mode in LAYER_MODES if mode is not Mode.RECOMPUTE)
"""Those that are restored in every round. Recomputing is timed once, since it takes most of the
time and is never near the best; what a layer of it costs is timed in every round."""


class SettingLab:
    """Measures one setting in a folder of its own."""

    def __init__(
        self,
        setting: MeasuredSetting,
        scale: Scale,
        model: Model,
        folder: Path,
        settings: Settings,
        split: CoreSplit | None = None,
    ) -> None:
        self._setting = setting
        self._machine = SettingMachine(setting, model, folder, split)
        self._scale = scale
        self._model = model
        self._settings = settings
        self._history = history_of(setting, model, settings)
        self._layers = model.config.layer_count

    def measure(self) -> Found:
        """Saves the history for every mode and restores it in rounds; raises BenchmarkError."""
        machine = self._machine
        costs = machine.nominal_costs(machine.computing())
        schedules = {mode: schedule_for(mode, costs, self._layers) for mode in LAYER_MODES}
        faster = with_faster_reads(costs)
        stored = {
            mode: storing_schedule(schedule, schedule_for(mode, faster, self._layers))
            for mode, schedule in schedules.items()
        }
        runner = ModeRunner(self._model, self._history, stored, costs)
        with machine.saving() as client:
            plain = runner.save(client)
        # Saving takes minutes, and the speed drifts. Schedules hang on relations of costs, which
        # hardly do; the device's rate is set by the C_H of now.
        computing = machine.computing()
        bytes_per_s = machine.bytes_per_s(computing)
        with machine.restoring(bytes_per_s) as device:
            samples = self._interleaved(device, runner)
            recompute_s = runner.restore(device.client, Mode.RECOMPUTE).duration_s
            equal = all(
                runner.continuation(device.client, mode) == plain
                for mode in LAYER_MODES
                if runner.stores(mode)
            )
        return Found(
            setting=self._setting,
            schedules=schedules,
            seconds={
                **{mode: samples[mode] for mode in STORING_MODES},
                Mode.RECOMPUTE: (recompute_s,),
            },
            waited_s=samples[_waited(Mode.HCACHE)],
            made_s=samples[_made(Mode.HCACHE)],
            restored={
                **{
                    mode: tuple(
                        RestoredLayers.of(stored[mode], count)
                        for count in samples[_recomputed(mode)]
                    )
                    for mode in STORING_MODES
                },
                Mode.RECOMPUTE: (RestoredLayers.of(stored[Mode.RECOMPUTE], self._layers),),
            },
            costs=rounds_of(LayerCosts, samples),
            beside=rounds_of(BesideCosts, samples),
            device_bytes_per_s=bytes_per_s,
            hidden_bytes=machine.hidden_bytes,
            planned_project_s=computing.project_s,
            tokens_equal=equal,
        )

    def _interleaved(
        self, device: SlowDevice, runner: ModeRunner
    ) -> Mapping[str, tuple[float, ...]]:
        """Seconds by mode and by the names of costs, one for each round."""
        client = device.client

        def begin_cold() -> None:
            """Before each round, and before a second or third read of the same chunks in it.

            A daemon keeps in DRAM what is read for the second time.
            """
            device.forget()
            # What a daemon and a session do once, at their first request, is no restoration's.
            runner.ask_for_nothing(client)

        def restore(mode: Mode) -> Measured:
            report = runner.restore(client, mode)
            return {
                mode: report.duration_s,
                _waited(mode): report.waited_s,
                _made(mode): report.made_s,
                _recomputed(mode): report.recomputed_layer_tokens / len(self._history),
            }

        def read(source: Source) -> Measured:
            return {f"io_{source}_s": runner.read(client, source)}

        def read_beside() -> Measured:
            return asdict(self._beside(client, runner, begin_cold))

        group = [Alternative(run=partial(restore, mode)) for mode in STORING_MODES]
        group += [
            Alternative(run=partial(read, source), prepare=begin_cold) for source in READ_SOURCES
        ]
        group += [Alternative(run=lambda: {"compute_s": self._machine.recomputing_s()})]
        group += [Alternative(run=lambda: asdict(self._machine.computing()))]
        group += [Alternative(run=read_beside, prepare=begin_cold)]

        def announce(text: str) -> None:
            self._settings.console.print(f"{self._setting.name}: {text}")

        return interleave(
            [group],
            rounds=self._scale.rounds,
            # Else every setting would have the same way first in the same round.
            generator=random.Random(f"{self._settings.seed} {self._setting.name}"),
            announce=announce,
            prepare=begin_cold,
        )

    def _beside(
        self, client: Client, runner: ModeRunner, begin_cold: Callable[[], None]
    ) -> BesideCosts:
        """Three cold reads of one span of the history, each beside work of one kind."""
        projecting, first_step = self._machine.projecting(), self._machine.first_step()
        first_step()
        alone_s = first_step()

        def read(source: Source) -> Callable[[], float]:
            return partial(runner.read, client, source, token_count=SPAN_TOKENS)

        hidden_s, project_s = beside(read(Source.HIDDEN), projecting)
        kv_s, _ = beside(read(Source.KV), projecting)
        begin_cold()
        slow_hidden_s, step_s = beside(read(Source.HIDDEN), first_step)
        return BesideCosts(
            hidden_beside_project_s=hidden_s,
            kv_beside_project_s=kv_s,
            hidden_beside_compute_s=slow_hidden_s,
            project_beside_hidden_s=project_s,
            compute_slowdown=step_s / alone_s,
        )


def history_of(setting: MeasuredSetting, model: Model, settings: Settings) -> list[int]:
    """Tokens that the seed and the setting decide."""
    generator = random.Random(f"{settings.seed} {setting.name}")
    vocabulary = model.config.vocab_size
    return [generator.randrange(vocabulary) for _ in range(setting.token_count)]


def _waited(mode: Mode) -> str:
    return f"{mode}_waited_s"


def _made(mode: Mode) -> str:
    return f"{mode}_made_s"


def _recomputed(mode: Mode) -> str:
    return f"{mode}_recomputed"
