"""Records one run of the workload: the disks before it, everything it did, the disks after it."""

import shutil
import subprocess
import sys
from pathlib import Path

from kvstored.store.space.device_set import format_device_set
from tests.faults.power.breakage import Breakage
from tests.faults.power.chunks import DEVICE_BYTES, SLAB_BYTES, device_paths
from tests.faults.power.disk import Disks, steps
from tests.faults.power.log import CALLS, read_events
from tests.faults.power.marks import MARKS_FILE
from tests.faults.power.plan import Recording
from tests.faults.power.workload import DISK_FOLDER

ROOT = Path(__file__).parents[3]
LOG_FILE = "log"
START_FOLDER = "start"
WRITE_BYTES_MAX = 64 * 1024 * 1024
"""strace shows so many bytes of a write: all of them."""
RECORD_TIMEOUT_S = 240.0
UNTRACKED_FILES = {"index/lock.mdb", MARKS_FILE}


class RecordingError(RuntimeError):
    """The workload could not be recorded, or the log does not explain what it left."""


def strace_problem() -> str | None:
    """Why nothing can be recorded here; None when it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    probe = subprocess.run(
        ["strace", "-f", "-o", "/dev/null", "true"], capture_output=True, check=False
    )
    return "strace may not trace processes here" if probe.returncode else None


def record(folder: Path, *, seed: int, breakage: Breakage | None = None) -> None:
    """Formats a store in ``folder``, copies it and runs the workload on it under strace.

    Raises RecordingError.
    """
    folder = folder.resolve()
    disk, start = folder / DISK_FOLDER, folder / START_FOLDER
    disk.mkdir()
    format_device_set(
        device_paths(disk),
        device_bytes=DEVICE_BYTES,
        slab_bytes=SLAB_BYTES,
        force=False,
        progress=lambda _done, _total: None,
    )
    shutil.copytree(disk, start)
    command = [
        *("strace", "-f", "--seccomp-bpf", "-y", "-xx", "-s", str(WRITE_BYTES_MAX)),
        *("-e", "signal=none", "-e", f"trace={','.join(CALLS)}", "-o", str(folder / LOG_FILE)),
        *(sys.executable, "-m", "tests.faults.power.workload", str(folder), str(seed)),
    ]
    if breakage is not None:
        command.append(breakage)
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=RECORD_TIMEOUT_S, check=False, cwd=ROOT
    )
    if result.returncode != 0:
        raise RecordingError(f"the workload failed:\n{result.stderr}")


def load_recording(folder: Path) -> Recording:
    """The recording in ``folder``; raises LogError."""
    folder = folder.resolve()
    files = {path.name: path.read_bytes() for path in sorted((folder / START_FOLDER).iterdir())}
    return Recording(files=files, events=read_events(folder / LOG_FILE, folder / DISK_FOLDER))


def check_replay(folder: Path) -> None:
    """Replays a whole recording: it must give exactly the files that the workload left.

    Raises RecordingError for the first that differs.
    """
    recording = load_recording(folder)
    disks = Disks(recording.files)
    for event, is_end in steps(recording.events):
        if event.path != MARKS_FILE:
            (disks.end if is_end else disks.begin)(event)
    replayed = {
        name: bytes(content)
        for name, content in disks.live_files().items()
        if name not in UNTRACKED_FILES and not name.endswith("/")
    }
    root = folder.resolve() / DISK_FOLDER
    left = {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and str(path.relative_to(root)) not in UNTRACKED_FILES
    }
    if replayed.keys() != left.keys():
        raise RecordingError(f"replayed {sorted(replayed)}, but there are {sorted(left)}")
    for name, content in left.items():
        if content != replayed[name]:
            raise RecordingError(f"the replay of {name} differs from the file")
