"""One setting: all modes in turn with the costs that bound them."""

import random
import statistics
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.daemon_process import DaemonOptions, DaemonProcess
from benchmarks.interleave import Alternative, Measured, interleave
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
from engine_adapters.runner.compute_costs import ComputeTimer
from engine_adapters.runner.engine import TOKEN_BUDGET
from engine_adapters.runner.model import Model
from engine_adapters.runner.restorer import SPAN_TOKENS
from engine_adapters.runner.state_format import token_bytes
from kvstored_client import Client, StateKind

MIB = 1024 * 1024
DEVICE_BYTES = 5120 * MIB
SLAB_BYTES = 8 * MIB
SAVING_DRAM_BYTES = 512 * MIB
RESTORING_DRAM_BYTES = 8 * MIB
"""Room for one chunk or a few: restorations come from the device."""
READ_BYTES_MAX = 128 * 1024
"""A slice of hidden states. Slices of the paper's models are not merged with their neighbours
either: they have 512 KiB and more."""
ARENA_BYTES = 320 * MIB
TIMER_REPEATS = 3

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
        self._scale = scale
        self._model = model
        self._folder = folder
        self._settings = settings
        generator = random.Random(f"{settings.seed} {setting.name}")
        vocabulary = model.config.vocab_size
        history = [generator.randrange(vocabulary) for _ in range(setting.token_count)]
        self._history = history
        self._layers = model.config.layer_count

    def measure(self) -> dict[str, tuple[float, ...]]:
        """Samples by key, one for each round: seconds of modes and bound, and whether equal."""
        torch.set_num_threads(self._setting.threads)
        project_s, compute_s = self._computing()
        bytes_per_s = self._setting.bandwidth_share * self._hidden_bytes / project_s
        costs = self._nominal_costs(bytes_per_s, project_s=project_s, compute_s=compute_s)
        schedules = {mode: schedule_for(mode, costs, self._layers) for mode in LAYER_MODES}
        planned = ", ".join(f"{mode} {schedule}" for mode, schedule in schedules.items())
        self._settings.console.print(f"{self._setting.name}: {planned}")
        runner = ModeRunner(self._model, self._history, schedules)
        with DaemonProcess(self._options(SAVING_DRAM_BYTES)) as daemon, _client(daemon) as client:
            runner.save(client)
        limited = self._options(RESTORING_DRAM_BYTES, int(bytes_per_s))
        with DaemonProcess(limited) as daemon, _client(daemon) as client:
            samples = self._interleaved(daemon, client, runner)
            plain = runner.continuation(client, Mode.RECOMPUTE)
            equal = [runner.continuation(client, mode) == plain for mode in LAYER_MODES]
        rate = bytes_per_s / 1e6
        return {
            **samples,
            "tokens_equal": (float(all(equal)),),
            "device_mb_per_s_max": (rate,),
            "device_rate_reached": tuple(
                self._hidden_bytes / read_s / bytes_per_s for read_s in samples["io_hidden_s"]
            ),
        }

    def _interleaved(
        self, daemon: DaemonProcess, client: Client, runner: ModeRunner
    ) -> dict[str, tuple[float, ...]]:
        def restart() -> None:
            # It forgets what was read in the rounds before, and nothing is read twice in one.
            daemon.restart()
            if not client.available():
                raise BenchmarkError("the daemon is not there after its restart")

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
        project_s, compute_s = self._computing()
        return {"project_s": project_s, "compute_s": compute_s}

    def _computing(self) -> tuple[float, float]:
        """C_H and C_Token of one layer for the whole history."""
        timer = ComputeTimer(self._model, repeats=TIMER_REPEATS)
        tokens = self._setting.token_count
        # As a restorer does it: span after span.
        span_tokens = min(tokens, SPAN_TOKENS)
        (project,) = timer.project([span_tokens])
        (compute,) = timer.recompute([tokens], step_tokens=TOKEN_BUDGET)
        return project.seconds * tokens / span_tokens, compute.seconds

    def _nominal_costs(
        self, bytes_per_s: float, *, project_s: float, compute_s: float
    ) -> LayerCosts:
        kv_bytes = self._setting.token_count * token_bytes(self._model, StateKind.KV)
        return LayerCosts(
            io_hidden_s=self._hidden_bytes / bytes_per_s,
            io_kv_s=kv_bytes / bytes_per_s,
            compute_s=compute_s,
            project_s=project_s,
        )

    @property
    def _hidden_bytes(self) -> int:
        return self._setting.token_count * token_bytes(self._model, StateKind.HIDDEN)

    def _options(self, dram_bytes: int, bytes_per_s: int | None = None) -> DaemonOptions:
        return DaemonOptions(
            folder=self._folder,
            device_bytes=DEVICE_BYTES,
            dram_bytes=dram_bytes,
            slab_bytes=SLAB_BYTES,
            arena_bytes_max=ARENA_BYTES,
            device_count=1,
            device_bytes_per_s_max=bytes_per_s,
            read_bytes_max=READ_BYTES_MAX,
            is_formatted=bytes_per_s is not None,
        )


def _client(daemon: DaemonProcess) -> Client:
    return Client(
        str(daemon.options.socket),
        arena_bytes=str(ARENA_BYTES),
        name="restore",
        reconnect_interval_s=0.0,
    )


def median_ratio(ours: tuple[float, ...], others: tuple[float, ...]) -> float:
    """Median of the ratios of each round."""
    return statistics.median(our / other for our, other in zip(ours, others, strict=True))
