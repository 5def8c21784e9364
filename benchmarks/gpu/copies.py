"""Copies between the arena and the device, beside one copy of pinned memory as long."""

import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.benchmark import BenchmarkError, Settings
from benchmarks.gpu.device import MeasuredDevice
from benchmarks.gpu.scale import Scale
from benchmarks.interleave import ratios
from benchmarks.kit.daemon_process import DaemonOptions, served
from benchmarks.report import Series, Summary
from benchmarks.scratch import scratch_folder
from engine_adapters.device_copies.copies import DeviceCopies
from engine_adapters.device_copies.open_copies import open_copies
from kvstored_client import Client

FIGURES = ("gpu_copies_vs_pinned_min",)
BLOCK_BYTES = 1 << 16
"""A block of 16 tokens with 8 heads of 128 in bfloat16, keys and values."""
DEVICE_BYTES, DRAM_BYTES = 1 << 28, 1 << 26
SCRATCH_BYTES = 1 << 29
REPEATS = 7
OUTWARD, INWARD = "device_to_host", "host_to_device"
PEERS = {"gather": OUTWARD, "fetch": OUTWARD, "scatter": INWARD, "brought": INWARD}
"""Each verb of ``DeviceCopies``, and the direction of the plain copy that it is held against."""


def run(settings: Settings, scale: Scale, measured: MeasuredDevice) -> list[Series]:
    """Rates of all verbs and of plain copies, in turn; raises BenchmarkError."""
    with scratch_folder(settings.folder, SCRATCH_BYTES) as folder:
        options = _options(folder, scale)
        with served(options, name="copies") as (_, client):
            return _series(_Lab(client, scale.copied_bytes, measured).rates())


def _options(folder: Path, scale: Scale) -> DaemonOptions:
    return DaemonOptions(
        folder=folder,
        device_bytes=DEVICE_BYTES,
        dram_bytes=DRAM_BYTES,
        arena_bytes_max=max(scale.arena_bytes, 2 * scale.copied_bytes),
        device_count=1,
    )


class _Lab:
    """Memory of the arena, pinned memory, and blocks of the device, all of one size."""

    def __init__(self, client: Client, byte_count: int, measured: MeasuredDevice) -> None:
        region, memory = client.allocate(byte_count), client.arena_memory
        if region is None or memory is None:
            raise BenchmarkError("the arena has no room for what is to be copied")
        self._region = region
        self._device = measured.device
        self._copies: DeviceCopies = open_copies(measured.device)
        self._copies.pin(memory)
        count = byte_count // BLOCK_BYTES
        self._ids = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()
        self._rows: Tensor = region.tensor(torch.uint8, (count, BLOCK_BYTES))
        self._rows.fill_(1)
        self._blocks = torch.ones(count, BLOCK_BYTES, dtype=torch.uint8, device=self._device)
        is_pinned = not measured.is_cpu
        self._pinned = torch.ones(count, BLOCK_BYTES, dtype=torch.uint8, pin_memory=is_pinned)

    def rates(self) -> dict[str, tuple[float, ...]]:
        """GB/s of each repetition, by verb and by direction."""
        works: dict[str, Callable[[], None]] = {
            "gather": self._gather,
            "fetch": self._fetch,
            "scatter": self._scatter,
            "brought": self._brought,
            OUTWARD: lambda: self._plain(self._blocks, self._pinned),
            INWARD: lambda: self._plain(self._pinned, self._blocks),
        }
        found: dict[str, list[float]] = {name: [] for name in works}
        try:
            for repetition in range(REPEATS + 1):
                for name, work in works.items():
                    self._finish()
                    started_s = time.perf_counter()
                    work()
                    self._finish()
                    if repetition:
                        seconds = time.perf_counter() - started_s
                        found[name].append(self._rows.nbytes / seconds / 1e9)
        finally:
            del self._rows
            self._region.release()
        return {name: tuple(values) for name, values in found.items()}

    def _gather(self) -> None:
        self._copies.gather(self._blocks, self._ids, self._rows).wait()

    def _fetch(self) -> None:
        self._copies.fetch((self._blocks,), self._rows).wait()

    def _scatter(self) -> None:
        parts = list(self._rows.view(-1, len(self._rows[0]) * self._blocks_of_part()))
        self._copies.scatter(parts, self._blocks, self._ids, after=self._copies.mark()).wait()

    def _blocks_of_part(self) -> int:
        """As many as a chunk of all layers has, about: a power of two, as their number is."""
        return min(64, len(self._rows))

    def _brought(self) -> None:
        with self._copies.brought(self._rows) as brought:
            pass
        brought.landing.wait()

    def _plain(self, source: Tensor, target: Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def _finish(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def _series(rates: dict[str, tuple[float, ...]]) -> list[Series]:
    """The figure is the worst verb's median; on CPUs, where nothing is brought, without that."""
    over = {name: ratios(rates[name], rates[peer]) for name, peer in PEERS.items()}
    medians = [
        Series(key=f"copies_{name}_vs_pinned", unit="ratio", samples=each)
        for name, each in over.items()
    ]
    figure = Series(
        key=FIGURES[0],
        unit="ratio",
        samples=tuple(one.value for one in medians),
        summary=Summary.LEAST,
        is_figure=True,
    )
    details = [
        Series(key=f"copies_{name}", unit="GB/s", samples=values) for name, values in rates.items()
    ]
    return [figure, *medians, *details]
