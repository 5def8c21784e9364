"""The lab as a whole: record, replay as a check, and examine states in several processes."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults.power.breakage import Breakage
from tests.faults.power.examine import Share, Task
from tests.faults.power.log import UnknownResultError
from tests.faults.power.recording import ROOT, check_replay, record

PROCESSES = 2
MEMORY_FOLDER = Path("/dev/shm")
"""Where states are put, if there is such a place: a disk would be ten times slower."""

KEPT_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 32),
    "MALLOC_TOP_PAD_": str(1 << 28),
}
"""For processes that examine: each state takes the memory of the one before, without a page fault.
"""

STATES_PER_LAB = 25_000
RECORDINGS_MAX = 5
"""Of one workload, until no call was cut off by its end; that happens seldom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabReport:
    """What a lab found; ``broken`` is empty unless a state breaks a promise.

    ``seen`` counts what the lab met and lets pass.
    """

    folder: Path
    seed: int
    wanted_count: int
    state_count: int
    moment_count: int
    elapsed_s: float
    broken: tuple[str, ...]
    seen: dict[str, int]


def run_lab(folder: Path, *, seed: int, count: int, breakage: Breakage | None = None) -> LabReport:
    """Records a workload in ``folder`` and examines up to ``count`` of its states.

    A recording that breaks off within a call says not what that did, and is made once more.
    """
    for left in reversed(range(RECORDINGS_MAX)):
        record(folder, seed=seed, breakage=breakage)
        try:
            check_replay(folder)
            break
        except UnknownResultError:
            if not left:
                raise
            shutil.rmtree(folder)
            folder.mkdir()
    return examine_recording(folder, seed=seed, count=count)


def run_labs(
    base: Path,
    *,
    seed: int,
    count: int,
    count_per_lab: int = STATES_PER_LAB,
    breakage: Breakage | None = None,
) -> Iterator[LabReport]:
    """One lab after the other, until ``count`` states are examined or one breaks a promise.

    Each has a folder in ``base``, which stays only where a promise is broken, and the
    next seed.
    """
    number = 0
    while count > 0:
        folder = base / f"recording-{number}"
        folder.mkdir()
        report = run_lab(
            folder, seed=seed + number, count=min(count, count_per_lab), breakage=breakage
        )
        yield report
        if report.broken or not report.state_count:
            return
        shutil.rmtree(folder)
        count -= report.state_count
        number += 1


def examine_recording(folder: Path, *, seed: int, count: int) -> LabReport:
    """Examines states of a recording that is there; the same ones for the same seed and count."""
    started = time.monotonic()
    base = MEMORY_FOLDER if os.access(MEMORY_FOLDER, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="kvstored-power-", dir=base) as memory:
        tasks = [
            Task(
                folder=str(folder.resolve()),
                memory=memory,
                count=count,
                seed=seed,
                part=part,
                parts=PROCESSES,
            )
            for part in range(PROCESSES)
        ]
        shares = _run(tasks)
    seen: Counter[str] = Counter()
    for share in shares:
        seen.update(share.seen)
    return LabReport(
        folder=folder,
        seed=seed,
        wanted_count=count,
        state_count=sum(share.state_count for share in shares),
        moment_count=max(share.moment_count for share in shares),
        elapsed_s=time.monotonic() - started,
        broken=tuple(line for share in shares for line in share.broken),
        seen=dict(seen),
    )


def _run(tasks: list[Task]) -> list[Share]:
    """Runs each task in a process of its own; none of them is left behind."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.faults.power.examine", json.dumps(asdict(task))],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **KEPT_MEMORY},
        )
        for task in tasks
    ]
    try:
        return [_share_of(*pair) for pair in zip(processes, tasks, strict=True)]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def _share_of(process: "subprocess.Popen[str]", task: Task) -> Share:
    output, errors = process.communicate()
    if process.returncode == 0:
        return Share(**json.loads(output))
    task.end_file.touch()
    position = task.position_file
    where = position.read_text() if position.exists() else "before the first state"
    return Share(broken=[where, f"the process ended with {process.returncode}", errors])
