"""The two parts: a large index that is opened and asked, and a lost one that is rebuilt."""

import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.benchmark import Benchmark, Settings
from benchmarks.index_scale.asked import Asked, check_stored, timed
from benchmarks.index_scale.fabric import (
    CLASS_BYTES,
    DEVICE_COUNT,
    INDEX_MAP_BYTES,
    SLAB_BYTES,
    Fabric,
)
from benchmarks.kit.daemon_process import DaemonOptions, DaemonProcess
from benchmarks.report import Series, Summary
from benchmarks.scratch import scratch_folder
from benchmarks.workload import GIB, MIB
from kvstored.store.index.index import DATA_FILE
from kvstored.store.index.snapshot import SNAPSHOT_FILE

DRAM_BYTES = 64 * MIB
"""The DRAM tier counts in the daemon's memory, so it is as small as it can be."""
ARENA_BYTES = 16 * MIB
START_TIMEOUT_S = 600.0
_RECORD_BYTES = 400
"""Index, its free pages and snapshot, for each record."""
_SPARE_BYTES = 512 * MIB
_UNITS = {"s": "s", "ms": "ms", "gib": "GiB", "min": "1/min", "records": "records"}

RECORDS = "records"
REBUILD = "rebuild"
PARTS = {
    RECORDS: ("open_clean_s", "open_killed_s", "match256_p99_ms", "rss_gib", "records"),
    REBUILD: ("rebuild_chunks_per_min",),
}

Samples = dict[str, list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured: each part ``round_count`` times."""

    record_count: int
    rebuild_count: int
    asked: Asked
    round_count: int = 3

    @property
    def scratch_bytes(self) -> int:
        """What the larger part needs; one is gone before the other begins."""
        return max(self.record_count * _RECORD_BYTES, self.rebuild_count * CLASS_BYTES * 2) + (
            _SPARE_BYTES
        )


FULL = Scale(
    record_count=10_000_000,
    rebuild_count=500_000,
    asked=Asked(match_count=1000, leased_count=300, put_count=300),
)
QUICK = Scale(
    record_count=1_000_000,
    rebuild_count=100_000,
    asked=Asked(match_count=1000, leased_count=300, put_count=300),
)


def measure(settings: Settings, scale: Scale) -> tuple[Series, ...]:
    """Runs the parts that the settings name; raises BenchmarkError."""
    run = {RECORDS: measure_records, REBUILD: measure_rebuild}
    samples: Samples = defaultdict(list)
    for part in settings.parts or tuple(run):
        with (
            scratch_folder(settings.folder, scale.scratch_bytes) as folder,
            settings.console.status(part) as status,
        ):
            run[part](settings, scale, folder, samples, status.update)
    return series(samples)


def measure_records(
    settings: Settings,
    scale: Scale,
    folder: Path,
    samples: Samples,
    announce: Callable[[str], None],
) -> None:
    """Kills and stops the daemon in turn; after each start it is asked when it knows sequences.

    The page cache is warm: what is measured is the daemon, not the disk.
    """
    fabric = Fabric(folder=folder, chunk_count=scale.record_count, seed=settings.seed)
    generator = settings.random()
    announce(f"making the index of {scale.record_count} chunks")
    keys = fabric.keys()
    fabric.make_devices()
    fabric.make_index(keys)
    samples["records"].append(scale.record_count)
    announce("first start")
    with DaemonProcess(daemon_options(fabric)) as daemon:
        for number in range(scale.round_count):
            announce(f"round {number + 1} of {scale.round_count}")
            with scale.asked.client(daemon):
                daemon.kill()
            samples["open_killed_s"].append(timed(daemon.start))
            put_together = partial(scale.asked.wait_for_sequences, daemon, fabric.sequence_count)
            samples["sequences_known_s"].append(timed(put_together))
            scale.asked.ask(daemon, keys, generator, samples)
            samples["stop_s"].append(timed(daemon.stop))
            samples["snapshot_gib"].append(size_gib(fabric.index / SNAPSHOT_FILE))
            samples["open_clean_s"].append(timed(daemon.start))
            samples["sequences_known_s"].append(timed(put_together))
            scale.asked.ask(daemon, keys, generator, samples)
        samples["index_gib"].append(size_gib(fabric.index / DATA_FILE))


def measure_rebuild(
    settings: Settings,
    scale: Scale,
    folder: Path,
    samples: Samples,
    announce: Callable[[str], None],
) -> None:
    """Takes the index away while the daemon is stopped, and starts it."""
    fabric = Fabric(folder=folder, chunk_count=scale.rebuild_count, seed=settings.seed)
    announce(f"writing {scale.rebuild_count} extents")
    keys = fabric.keys()
    fabric.make_devices()
    fabric.write_extents(keys)
    announce("first start")
    with DaemonProcess(daemon_options(fabric)) as daemon:
        for number in range(scale.round_count):
            announce(f"round {number + 1} of {scale.round_count}")
            daemon.stop()
            shutil.rmtree(fabric.index)
            duration_s = timed(daemon.start)
            check_stored(scale.asked, daemon, keys)
            samples["rebuild_s"].append(duration_s)
            samples["rebuild_chunks_per_min"].append(scale.rebuild_count * 60 / duration_s)


def daemon_options(fabric: Fabric) -> DaemonOptions:
    """A daemon on the devices of a fabric."""
    return DaemonOptions(
        folder=fabric.folder,
        device_bytes=fabric.device_bytes,
        dram_bytes=DRAM_BYTES,
        arena_bytes_max=ARENA_BYTES,
        device_count=DEVICE_COUNT,
        slab_bytes=SLAB_BYTES,
        is_formatted=True,
        index_map_bytes=INDEX_MAP_BYTES,
        start_timeout_s=START_TIMEOUT_S,
    )


def size_gib(path: Path) -> float:
    """Size of a file."""
    return path.stat().st_size / GIB


def series(samples: Samples) -> tuple[Series, ...]:
    """One series for each key; the figures are those that the parts promise."""
    figures = {figure for names in PARTS.values() for figure in names}
    return tuple(
        Series(
            key=key,
            unit=_UNITS[key.rsplit("_", 1)[-1]],
            samples=tuple(values),
            summary=Summary.MOST if key == "rss_gib" else Summary.MEDIAN,
            is_figure=key in figures,
        )
        for key, values in samples.items()
    )


def run(settings: Settings) -> tuple[Series, ...]:
    """Runs the benchmark at the scale that the settings ask for."""
    return measure(settings, QUICK if settings.quick else FULL)


BENCHMARK = Benchmark(
    name="index_scale",
    figures=tuple(figure for names in PARTS.values() for figure in names),
    run=run,
    parts=PARTS,
)
