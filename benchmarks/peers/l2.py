"""LMCache over kvstored and over its own file adapter, by LMCache's own benchmark, in turn.

Objects are stored, loaded again from memory (the page cache, our DRAM), and once more from the
device. The file adapter is taken as it comes, and with direct I/O, which keeps nothing in memory.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.benchmark import Settings
from benchmarks.interleave import Alternative, Measured, Rounds, interleave
from benchmarks.kit.daemon_process import DaemonOptions, DaemonProcess
from benchmarks.peers.l2_bench import L2Bench, ObjectSet
from benchmarks.report import Series
from benchmarks.scratch import scratch_folder
from benchmarks.storage.rates import Rates, measured, ratio
from benchmarks.workload import GB, KIB, MIB

OURS, FILES, DIRECT = "kvstored", "files", "direct_files"
OPERATIONS = STORE, WARM, COLD = "store", "load_warm", "load_cold"
FIGURES = ("l2_store_vs_files", "l2_load_warm_vs_files", "l2_load_cold_vs_files")
SPARE_BYTES = 256 * MIB
"""Slabs that are being filled, the index, logs."""
SLAB_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class L2Scale:
    """What is stored, and how often."""

    objects: ObjectSet
    rounds: Rounds


QUICK = L2Scale(
    objects=ObjectSet(batch_objects=16, object_bytes=4 * MIB, round_count=3),
    rounds=Rounds(count=2, count_min=2, time_limit_s=0.0),
)
FULL = L2Scale(
    objects=ObjectSet(batch_objects=16, object_bytes=8 * MIB, round_count=4),
    rounds=Rounds(count=7, count_min=5, time_limit_s=600.0),
)
"""Objects of LMCache's 256 tokens, of a model with keys and values of 32 KiB a token."""


@dataclass(frozen=True, slots=True)
class L2Lab:
    """Each run has new files, or a new daemon, in ``folder``."""

    bench: L2Bench
    objects: ObjectSet
    folder: Path

    def alternatives(self) -> tuple[Alternative, ...]:
        """All that are compared."""
        return (
            Alternative(run=self._over_kvstored),
            Alternative(run=lambda: self._over_files(FILES, is_direct=False)),
            Alternative(run=lambda: self._over_files(DIRECT, is_direct=True)),
        )

    def _over_kvstored(self) -> Measured:
        with scratch_folder(self.folder, 0) as folder, DaemonProcess(self._options(folder)) as it:
            adapter = {
                "type": "native_plugin",
                "module_path": "engine_adapters.lmcache",
                "class_name": "Connector",
                "adapter_params": {"socket": str(it.options.socket)},
            }
            return self._measured(OURS, adapter, forget=it.restart)

    def _over_files(self, name: str, *, is_direct: bool) -> Measured:
        with scratch_folder(self.folder, 0) as folder:
            adapter = {"type": "fs", "base_path": str(folder), "use_odirect": is_direct}
            return self._measured(name, adapter, forget=lambda: drop_from_memory(folder))

    def _measured(
        self, name: str, adapter: dict[str, Any], *, forget: Callable[[], None]
    ) -> Measured:
        found = {
            f"{name}_{STORE}": self.bench.store(adapter) / GB,
            f"{name}_{WARM}": self.bench.load(adapter) / GB,
        }
        forget()
        return {**found, f"{name}_{COLD}": self.bench.load(adapter) / GB}

    def _options(self, folder: Path) -> DaemonOptions:
        byte_count = self.objects.byte_count + SPARE_BYTES
        return DaemonOptions(
            folder=folder,
            device_bytes=byte_count,
            dram_bytes=byte_count,
            # The connector's default.
            arena_bytes_max=512 * MIB,
            device_count=1,
            slab_bytes=SLAB_BYTES,
        )


def drop_from_memory(folder: Path) -> None:
    """Has files written to media, and nothing of them kept in the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                os.fsync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


def measure(settings: Settings, scale: L2Scale, interpreter: Path) -> tuple[Series, ...]:
    """Measures all three; raises BenchmarkError, also without room or without LMCache."""
    objects = scale.objects
    with (
        scratch_folder(settings.folder, 2 * (objects.byte_count + SPARE_BYTES)) as folder,
        settings.console.status("LMCache's L2 bench") as status,
    ):
        lab = L2Lab(L2Bench(interpreter, objects, folder), objects, folder)
        rates = interleave(
            [lab.alternatives()],
            rounds=scale.rounds,
            generator=settings.random(),
            announce=lambda text: status.update(f"LMCache's L2 bench: {text}"),
        )
    settings.console.print(
        f"{objects.round_count} batches of {objects.batch_objects} objects of "
        f"{objects.object_bytes // KIB} KiB"
    )
    return series(rates)


def series(rates: Rates) -> tuple[Series, ...]:
    """Ratios of each round, and the rates."""
    found = [
        ratio(
            f"l2_{operation}_vs_{peer}",
            rates,
            f"{OURS}_{operation}",
            f"{peer}_{operation}",
            is_figure=peer == FILES,
        )
        for operation in OPERATIONS
        for peer in (FILES, DIRECT)
    ]
    names = [f"{way}_{operation}" for way in (OURS, FILES, DIRECT) for operation in OPERATIONS]
    return (*found, *measured(rates, names))
