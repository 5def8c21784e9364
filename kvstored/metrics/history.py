"""What a daemon did in the last minutes. Pure; the caller names the time."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kvstored.metrics.snapshot import Snapshot

SAMPLE_S = 5.0
"""From one look to the next."""
SAMPLES_MAX = 61
"""Five minutes."""
_COUNTERS = ("dram_hit_chunks", "nvme_hit_chunks", "missed_chunks", "put_stored_chunks")


@dataclass(frozen=True, slots=True)
class _Sample:
    at_s: float
    moved: Mapping[str, tuple[int, int]]
    """Bytes that were read from and written to each device."""
    counters: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A value for each time between two looks, the oldest first; shares are None without reads."""

    read_bytes_per_s: Mapping[str, Sequence[float]]
    written_bytes_per_s: Mapping[str, Sequence[float]]
    """By device."""
    restored_chunks_per_s: Sequence[float]
    stored_chunks_per_s: Sequence[float]
    hit_share: Sequence[float | None]


class History:
    """Looks at a daemon, as many as there is room for. Belongs to one thread."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES_MAX)

    def add(self, now_s: float, snapshot: Snapshot) -> None:
        """Remembers a look; the oldest is forgotten when there is no room."""
        stats = snapshot.stats
        self._samples.append(
            _Sample(
                now_s,
                {one.path: (one.read_bytes, one.written_bytes) for one in stats.devices},
                {name: stats.counters.get(name, 0) for name in _COUNTERS},
            )
        )

    def series(self) -> Series:
        """What happened between the looks."""
        samples = list(self._samples)
        steps = [
            (before, after, after.at_s - before.at_s)
            for before, after in pairwise(samples)
            if after.at_s > before.at_s
        ]

        def rates(name: str) -> list[float]:
            return [
                (after.counters[name] - before.counters[name]) / time_s
                for before, after, time_s in steps
            ]

        def moved(path: str, place: int) -> list[float]:
            return [
                (after.moved[path][place] - before.moved[path][place]) / time_s
                for before, after, time_s in steps
            ]

        paths = list(samples[-1].moved) if samples else []
        restored = [
            in_dram + on_devices
            for in_dram, on_devices in zip(
                rates("dram_hit_chunks"), rates("nvme_hit_chunks"), strict=True
            )
        ]
        return Series(
            read_bytes_per_s={path: moved(path, 0) for path in paths},
            written_bytes_per_s={path: moved(path, 1) for path in paths},
            restored_chunks_per_s=restored,
            stored_chunks_per_s=rates("put_stored_chunks"),
            hit_share=[
                found / (found + missed) if found + missed else None
                for found, missed in zip(restored, rates("missed_chunks"), strict=True)
            ],
        )
