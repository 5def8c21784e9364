"""LMCache's own benchmark of an L2 adapter, run by its own interpreter."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.benchmark import BenchmarkError

GUIDE = (
    "LMCache and this project have to be in one environment: make one with "
    "`make .venv-lmcache/.installed`, and name it with --peer-python .venv-lmcache/bin/python"
)
ALIGNMENT_BYTES = 4096
"""Of LMCache's buffers, for files that bypass the page cache."""
WARM_UPS = 1
"""Batches of other objects before the measured ones: memory is touched for the first time."""
TIMEOUT_S = 300.0
_LINES_SHOWN = 3
_ENVIRONMENT = {
    # LMCache tells its makers how it is used, unless it is asked not to.
    "LMCACHE_TRACK_USAGE": "false",
    "LMCACHE_DISABLE_BANNER": "1",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSet:
    """``round_count`` measured batches of ``batch_objects`` objects; a batch is one call."""

    batch_objects: int
    object_bytes: int
    round_count: int

    @property
    def batch_bytes(self) -> int:
        """Of the objects of one call."""
        return self.batch_objects * self.object_bytes

    @property
    def byte_count(self) -> int:
        """Of all objects, with those that warm up."""
        return (WARM_UPS + self.round_count) * self.batch_bytes


class L2Bench:
    """``lmcache bench l2``. Each run is a process of its own, so that it finds nothing in memory.

    Raises BenchmarkError where it fails, or an object does.
    """

    def __init__(self, interpreter: Path, objects: ObjectSet, folder: Path) -> None:
        self._command = interpreter.with_name("lmcache")
        self._objects = objects
        self._folder = folder
        if not self._command.exists():
            raise BenchmarkError(f"{interpreter.parent} has no `lmcache`. {GUIDE}")

    def store(self, adapter: Mapping[str, Any]) -> float:
        """Bytes per second of stores."""
        return self._run(adapter, "store")

    def load(self, adapter: Mapping[str, Any]) -> float:
        """Bytes per second of loads of what the last run stored."""
        return self._run(adapter, "load")

    def _run(self, adapter: Mapping[str, Any], operation: str) -> float:
        objects, output = self._objects, self._folder / "l2.json"
        ran = subprocess.run(
            [
                *(str(self._command), "bench", "l2", "--quiet", "--only", operation),
                *("--l2-adapter", json.dumps(adapter), "--l1-align-bytes", str(ALIGNMENT_BYTES)),
                *("--num-keys", str(objects.batch_objects), "--warmup-rounds", str(WARM_UPS)),
                *("--data-size-kb", str(objects.object_bytes // 1024)),
                *("--rounds", str(objects.round_count)),
                *("--format", "json", "--output", str(output)),
            ],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={**os.environ, **_ENVIRONMENT},
            check=False,
        )
        if ran.returncode:
            lines = (ran.stderr or ran.stdout).splitlines()[-_LINES_SHOWN:]
            raise BenchmarkError("\n".join([f"`lmcache bench l2` failed. {GUIDE}", *lines]))
        return rate_of(json.loads(output.read_text()), objects)


def rate_of(report: Mapping[str, Any], objects: ObjectSet) -> float:
    """Bytes per second by LMCache's report of one operation; raises BenchmarkError for losses."""
    (operation,) = (
        measured for name, measured in report["metrics"].items() if name.startswith("op_")
    )
    if operation["total_success"] != objects.round_count * objects.batch_objects:
        raise BenchmarkError(
            f"LMCache's {operation['operation']} lost objects: {operation['total_success']} of "
            f"{objects.round_count * objects.batch_objects} came through"
        )
    return objects.batch_bytes / (float(operation["duration_avg_ms"]) / 1000)
