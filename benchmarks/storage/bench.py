"""What all parts share: the scratch folder, fio's best settings, daemons, rounds."""

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks import fio
from benchmarks.benchmark import Settings
from benchmarks.core_split import CoreSplit
from benchmarks.fio import FioJob, FioOperation
from benchmarks.fio_sweep import best_job
from benchmarks.interleave import Group, Rounds, interleave
from benchmarks.kit.daemon_process import DaemonOptions, DaemonProcess
from benchmarks.report import Series
from benchmarks.storage.scale import Scale
from benchmarks.storage.space import SLAB_BYTES
from benchmarks.store_session import ARENA_SPARE_BYTES
from benchmarks.workload import MIB

PEER_DEPTH = 16
"""Depth of the one job at 1 MiB that others publish their figures beside."""


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The context of one run. ``status`` tells a person what is happening."""

    settings: Settings
    scale: Scale
    folder: Path
    generator: random.Random
    status: Callable[[str], None]
    _best: dict[tuple[FioOperation, bool], FioJob] = field(default_factory=dict)

    @property
    def fio_path(self) -> Path:
        """The file that fio works on, of the bytes of one turn."""
        return self.folder / "fio"

    def run(
        self,
        part: str,
        groups: list[Group],
        *,
        rounds: Rounds,
        prepare: Callable[[], None] = _nothing,
    ) -> dict[str, tuple[float, ...]]:
        """Runs all rounds of a part."""
        return interleave(
            groups,
            rounds=rounds,
            generator=self.generator,
            announce=lambda text: self.status(f"{part}: {text}"),
            prepare=prepare,
        )

    def fio_best(self, operation: FioOperation, *, huge_pages: bool = False) -> FioJob:
        """The fastest job; looked for when it is first asked for."""
        key = (operation, huge_pages)
        if key not in self._best:
            jobs = fio.candidates(
                self.fio_path,
                operation=operation,
                byte_count=self.scale.call_bytes,
                request_bytes=self.scale.fio_request_bytes,
                depths=self.scale.fio_depths,
                jobs=self.scale.fio_jobs,
                engine=fio.best_engine(self.fio_path),
                huge_pages=huge_pages,
            )
            self._best[key] = best_job(
                jobs,
                generator=self.generator,
                announce=self.status,
                rounds=self.scale.sweep_rounds,
            )
            self.settings.console.print(f"peer: {self._best[key].describe()}")
        return self._best[key]

    def fio_1mib_16(self, operation: FioOperation) -> FioJob:
        """The job in the unit in which others publish: 1 MiB, 16 deep, one job."""
        return replace(
            self.fio_best(operation),
            request_bytes=MIB,
            depth=PEER_DEPTH,
            jobs=1,
        )

    @contextmanager
    def daemon(
        self,
        name: str,
        *,
        device_bytes: int,
        dram_bytes: int,
        arena_bytes: int,
        device_count: int = 2,
        slab_bytes: int = SLAB_BYTES,
        device_bytes_per_s_max: int | None = None,
        split: CoreSplit | None = None,
    ) -> Iterator[DaemonProcess]:
        """A running daemon in a folder of its own, which is removed with its devices.

        ``arena_bytes`` is the payload of one client's arena. With ``split`` it does the rest.
        """
        folder = self.folder / name
        folder.mkdir()
        options = DaemonOptions(
            folder=folder,
            device_bytes=device_bytes,
            dram_bytes=dram_bytes,
            # Clients round the size of their arenas up to whole huge pages.
            arena_bytes_max=arena_bytes + ARENA_SPARE_BYTES + 2 * MIB,
            device_count=device_count,
            slab_bytes=slab_bytes,
            device_bytes_per_s_max=device_bytes_per_s_max,
            split=split,
        )
        try:
            with DaemonProcess(options) as daemon:
                yield daemon
        finally:
            shutil.rmtree(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the benchmark: its figures, and what measures them and more."""

    figures: tuple[str, ...]
    run: Callable[[Bench], Sequence[Series]]
