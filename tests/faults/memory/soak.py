"""The soak: load in phases, and a look at the idle daemon after each."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from kvstored.format.geometry import class_bytes
from kvstored.tiers.chunks.open_frames import OPEN_SHARE_MAX
from kvstored_client import AppendItem, Client
from kvstored_contract.snapshot import SnapshotGeometry
from tests.faults.memory.load import ARENA_BYTES, PLAIN_LAYOUTS, Load
from tests.faults.memory.process import ProcessState, settled_state
from tests.support.daemon import MIB, DaemonProcess, Overrides
from tests.support.threads import together

THREADS = 4
CROWD = 16
"""Clients at once in the first half of the warm-up: pools of threads and heaps reach their size."""
GROWTH_MAX = 0.01
"""The promise: resident memory grows by no larger part after the warm-up."""
SLAB_BYTES = 2 * MIB
DRAM_BYTES = 16 * MIB
OVERRIDES: Overrides = {
    "store": {"device_bytes": 40 * MIB, "slab_bytes": SLAB_BYTES},
    "dram": {"capacity_bytes": DRAM_BYTES},
}
"""Small devices and little DRAM, so that both evict from the warm-up on."""
TAIL_LAYOUT = PLAIN_LAYOUTS[-1]
TAILS = int(OPEN_SHARE_MAX * DRAM_BYTES) // (SLAB_BYTES // (SLAB_BYTES // class_bytes(TAIL_LAYOUT)))
"""Open tails of this layout that DRAM has room for when nobody holds any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakReport:
    """The idle daemon after the warm-up, then after each phase, and the steps of all phases.

    ``turn_count`` of the steps were turns of conversations. ``append_rows`` were taken by the
    daemon since its start, and ``tails`` could be opened in the end.
    """

    states: tuple[ProcessState, ...]
    step_count: int
    turn_count: int
    append_rows: int
    tails: int

    @property
    def growth_bytes(self) -> int:
        """Resident bytes at the end above those after the warm-up."""
        return self.states[-1].resident_bytes - self.states[0].resident_bytes

    @property
    def growth(self) -> float:
        """The same as a part of what the daemon had after the warm-up."""
        return self.growth_bytes / self.states[0].resident_bytes

    def describe(self) -> str:
        """One line for people."""
        first, last = self.states[0], self.states[-1]
        return (
            f"{self.step_count} steps, {self.turn_count} of them turns of conversations: "
            f"resident {first.resident_bytes / MIB:.1f} MiB after the warm-up, "
            f"{last.resident_bytes / MIB:.1f} MiB at the end ({self.growth:+.2%}), in phases "
            f"{' '.join(f'{state.resident_bytes / MIB:.1f}' for state in self.states)}; "
            f"threads {first.threads} and {last.threads}, "
            f"descriptors {first.descriptors} and {last.descriptors}; {self.append_rows} rows "
            f"appended, {self.tails} of {TAILS} tails can be opened; "
            f"KiB more after each phase: {_growths([one.anonymous_bytes for one in self.states])} "
            f"of heaps, {_growths([one.file_bytes for one in self.states])} of files"
        )


def _growths(sizes: Sequence[int]) -> str:
    return " ".join(str((size - sizes[0]) // 1024) for size in sizes[1:])


def soak(
    daemon: DaemonProcess, *, warm_up_s: float, seconds: float, phases: int, seed: int
) -> SoakReport:
    """Loads the daemon; fails with its log when it ends."""
    follow(daemon)
    crowd = [Load(daemon.socket_path, seed=seed + number) for number in range(CROWD)]
    run_phase(crowd, warm_up_s / 2)
    loads = crowd[:THREADS]
    run_phase(loads, warm_up_s / 2)
    states = [settled_state(daemon.pid)]
    steps_before = sum(load.step_count for load in loads)
    turns_before = sum(load.turn_count for load in loads)
    for _ in range(phases):
        run_phase(loads, seconds / phases)
        assert daemon.process is not None
        assert daemon.process.poll() is None, daemon.log[-4000:]
        states.append(settled_state(daemon.pid))
    return SoakReport(
        states=tuple(states),
        step_count=sum(load.step_count for load in loads) - steps_before,
        turn_count=sum(load.turn_count for load in loads) - turns_before,
        append_rows=append_rows(daemon),
        tails=open_tails(daemon),
    )


def follow(daemon: DaemonProcess) -> None:
    """Has the daemon remember changes, as for a router: that memory is taken at once."""
    with Client(daemon.socket_path, arena_bytes=ARENA_BYTES, strict=True) as client:
        assert client.changes() is not None


def append_rows(daemon: DaemonProcess) -> int:
    """Rows that the daemon has taken since its start."""
    with Client(daemon.socket_path, arena_bytes=ARENA_BYTES, strict=True) as client:
        return client.admin.stats().counters["append_rows"]


def open_tails(daemon: DaemonProcess) -> int:
    """How many of TAILS and one can be opened: TAILS, if every session gave its frames back."""
    names = [f"tail {number}" for number in range(TAILS + 1)]
    with Client(daemon.socket_path, arena_bytes=ARENA_BYTES, strict=True) as client:
        for name in names:
            client.sequences.create(name, TAIL_LAYOUT, ephemeral=True)
        region = client.allocate(SnapshotGeometry(TAIL_LAYOUT, 1).byte_count)
        assert region is not None
        items = [
            AppendItem(sequence=name, first_token=0, first_row=0, token_count=1) for name in names
        ]
        report = client.append(TAIL_LAYOUT, region, 1, items)
    return sum(result.is_taken for result in report.results)


def run_phase(loads: list[Load], seconds: float) -> None:
    """Every load on a thread of its own until the time is up; raises what one of them raised."""
    deadline = time.monotonic() + seconds
    has_failed = threading.Event()

    def run(load: Load) -> None:
        try:
            while time.monotonic() < deadline and not has_failed.is_set():
                load.session(deadline)
        except BaseException:
            has_failed.set()
            raise

    together(*(partial(run, load) for load in loads))
