"""What measurements of one setting share: a daemon with a slow device, and costs of a layer."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from benchmarks.core_split import CoreSplit
from benchmarks.kit.daemon_process import DaemonOptions
from benchmarks.kit.slow_machine import SlowDevice, SlowMachine
from benchmarks.restore.measured.scale import MeasuredSetting
from engine_adapters.restore import LayerCosts
from engine_adapters.runner.calibrate.compute_costs import (
    ComputeTimer,
    Loading,
    Projection,
    Recomputation,
)
from engine_adapters.runner.engine.engine import TOKEN_BUDGET
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import SPAN_TOKENS
from engine_adapters.runner.states.state_format import CHUNK_TOKENS, token_bytes
from kvstored_client import Client, StateKind

MIB = 1024 * 1024
SLAB_BYTES = 11 * MIB
"""One chunk of keys and values of 40 layers, which has 10 MiB and a header, or two of hidden
states."""
CHUNK_SLABS = 3 + 4 / 2
"""Slabs of a chunk in seven layouts: in three it fills one, in four two share one."""
DEVICE_BASE_BYTES = 384 * MIB
"""Slabs that are not filled, and what a device keeps for itself."""
SAVING_DRAM_BYTES = 1024 * MIB
RESTORING_DRAM_BYTES = SLAB_BYTES
"""Room for one chunk or a few: restorations come from the device."""
READ_BYTES_MAX = 128 * 1024
"""A slice of hidden states. Slices of the paper's models are not merged with their neighbours
either: they have 512 KiB and more."""
ARENA_BYTES = 512 * MIB
"""The snapshots of seven layouts of one step of 512 tokens, or three spans of a restoration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Computing:
    """What the compute side takes for one layer of a history: C_H, and loading its KV."""

    project_s: float
    load_s: float


class SettingMachine:
    """The daemon of one setting, in a folder of its own, and this machine's costs.

    Torch has the threads of the setting from here on. Costs are timed right before they are
    used, since a machine's speed drifts; those of a restoration are means of all layers. With
    ``split`` the daemon and the client's threads have a core, and the caller's thread another.
    """

    def __init__(
        self,
        setting: MeasuredSetting,
        model: Model,
        folder: Path,
        split: CoreSplit | None = None,
    ) -> None:
        torch.set_num_threads(setting.threads)
        self._setting = setting
        self._model = model
        options = DaemonOptions(
            folder=folder,
            device_bytes=device_bytes(setting.token_count),
            dram_bytes=SAVING_DRAM_BYTES,
            arena_bytes_max=ARENA_BYTES,
            device_count=1,
            slab_bytes=SLAB_BYTES,
            read_bytes_max=READ_BYTES_MAX,
            split=split,
        )
        self._machine = SlowMachine(
            options, restoring_dram_bytes=RESTORING_DRAM_BYTES, name="restore"
        )

    @property
    def hidden_bytes(self) -> int:
        """Hidden states of the history in one layer."""
        return self._setting.token_count * token_bytes(self._model, StateKind.HIDDEN)

    def bytes_per_s(self, computing: Computing) -> float:
        """The device's rate where ``computing`` is what this machine takes now."""
        setting = self._setting
        if setting.balance_threads != setting.threads:
            torch.set_num_threads(setting.balance_threads)
            computing = self.computing()
            torch.set_num_threads(setting.threads)
        return setting.bandwidth_share * self.hidden_bytes / computing.project_s

    def computing(self) -> Computing:
        """Of the whole history, with the threads that torch has."""
        tokens = self._setting.token_count
        # As a restorer does it: span after span.
        span_tokens = min(tokens, SPAN_TOKENS)
        project = Projection(self._model, token_count_max=span_tokens)
        load = Loading(
            self._model,
            chunk_count_max=span_tokens // CHUNK_TOKENS,
            chunk_tokens=CHUNK_TOKENS,
        )
        share = span_tokens / tokens
        return Computing(
            project_s=self._mean_s(partial(project, span_tokens)) / share,
            load_s=self._mean_s(partial(load, span_tokens)) / share,
        )

    def _mean_s(self, work: Callable[[], None]) -> float:
        """Of as many layers as a restoration has, behind one that does not count.

        Not their median: a restoration takes their sum, with those that somebody interrupted,
        and costs of reads are means as well.
        """
        work()
        layers = self._model.config.layer_count
        started_s = time.perf_counter()
        for _ in range(layers):
            work()
        return (time.perf_counter() - started_s) / layers

    def projecting(self) -> Callable[[], float]:
        """C_H as it is at each call."""
        tokens = self._setting.token_count
        span_tokens = min(tokens, SPAN_TOKENS)
        work = Projection(self._model, token_count_max=span_tokens)
        return partial(_seconds, partial(work, span_tokens), share=span_tokens / tokens)

    def first_step(self) -> Callable[[], float]:
        """Computing one layer in the first step of a history, as it is at each call."""
        tokens = min(self._setting.token_count, TOKEN_BUDGET)
        work = Recomputation(self._model, token_count_max=tokens, step_tokens=TOKEN_BUDGET)
        return partial(_seconds, partial(work, tokens), share=float(work.layer_count))

    def recomputing_s(self) -> float:
        """C_Token of one layer for the whole history."""
        timer = ComputeTimer(self._model, repeats=1)
        _, compute = timer.recompute([self._setting.token_count], step_tokens=TOKEN_BUDGET)
        return compute.seconds

    def nominal_costs(self, computing: Computing) -> LayerCosts:
        """Costs of one layer where the device reads at exactly its rate."""
        bytes_per_s = self.bytes_per_s(computing)
        kv_bytes = self._setting.token_count * token_bytes(self._model, StateKind.KV)
        return LayerCosts(
            io_hidden_s=self.hidden_bytes / bytes_per_s,
            io_kv_s=kv_bytes / bytes_per_s,
            compute_s=self.recomputing_s(),
            project_s=computing.project_s,
            load_s=computing.load_s,
        )

    def saving(self) -> AbstractContextManager[Client]:
        """A client of a daemon on new devices, with room in DRAM and at full speed."""
        return self._machine.saving()

    def restoring(self, bytes_per_s: float) -> AbstractContextManager[SlowDevice]:
        """The same devices at that rate."""
        return self._machine.restoring(bytes_per_s)


def _seconds(work: Callable[[], None], *, share: float) -> float:
    """Of one layer of the whole history, of which ``work`` does that share."""
    started_s = time.perf_counter()
    work()
    return (time.perf_counter() - started_s) / share


def device_bytes(token_count: int) -> int:
    """Of a device with room for all layouts of a history of that many tokens."""
    chunks = -(-token_count // CHUNK_TOKENS)
    return DEVICE_BASE_BYTES + int(chunks * CHUNK_SLABS * SLAB_BYTES)
