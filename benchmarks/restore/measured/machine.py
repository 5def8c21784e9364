"""What measurements of one setting share: a daemon with a slow device, and costs of a layer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from benchmarks.benchmark import BenchmarkError
from benchmarks.daemon_process import DaemonOptions, DaemonProcess
from benchmarks.restore.measured.scale import MeasuredSetting
from engine_adapters.restore import LayerCosts
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


class SettingMachine:
    """The daemon of one setting, in a folder of its own, and this machine's costs.

    Torch has the threads of the setting from here on.
    """

    def __init__(self, setting: MeasuredSetting, model: Model, folder: Path) -> None:
        torch.set_num_threads(setting.threads)
        self._setting = setting
        self._model = model
        self._folder = folder

    @property
    def hidden_bytes(self) -> int:
        """Hidden states of the history in one layer."""
        return self._setting.token_count * token_bytes(self._model, StateKind.HIDDEN)

    def bytes_per_s(self, project_s: float) -> float:
        """The device's rate in this setting where projecting a layer takes ``project_s``."""
        return self._setting.bandwidth_share * self.hidden_bytes / project_s

    def computing(self) -> tuple[float, float]:
        """C_H and C_Token of one layer for the whole history."""
        timer = ComputeTimer(self._model, repeats=TIMER_REPEATS)
        tokens = self._setting.token_count
        # As a restorer does it: span after span.
        span_tokens = min(tokens, SPAN_TOKENS)
        (project,) = timer.project([span_tokens])
        (compute,) = timer.recompute([tokens], step_tokens=TOKEN_BUDGET)
        return project.seconds * tokens / span_tokens, compute.seconds

    def nominal_costs(
        self, bytes_per_s: float, *, project_s: float, compute_s: float
    ) -> LayerCosts:
        """Costs of one layer where the device reads at exactly its rate."""
        kv_bytes = self._setting.token_count * token_bytes(self._model, StateKind.KV)
        return LayerCosts(
            io_hidden_s=self.hidden_bytes / bytes_per_s,
            io_kv_s=kv_bytes / bytes_per_s,
            compute_s=compute_s,
            project_s=project_s,
        )

    @contextmanager
    def saving(self) -> Iterator[Client]:
        """A client of a daemon on new devices, with room in DRAM and at full speed."""
        with DaemonProcess(self._options(SAVING_DRAM_BYTES)) as daemon, _client(daemon) as client:
            yield client

    @contextmanager
    def restoring(self, bytes_per_s: float) -> Iterator[tuple[Client, Callable[[], None]]]:
        """A client of a daemon on the same devices at that rate, and how to restart it.

        Restarted it forgets what was read before.
        """
        limited = self._options(RESTORING_DRAM_BYTES, int(bytes_per_s))
        with DaemonProcess(limited) as daemon, _client(daemon) as client:

            def restart() -> None:
                daemon.restart()
                if not client.available():
                    raise BenchmarkError("the daemon is not there after its restart")

            yield client, restart

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
