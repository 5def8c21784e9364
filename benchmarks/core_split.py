"""One core for the thread that computes, another one for everything else, the daemon included.

Ratios of computing beside reads to computing alone contain how much both want the same cores, and
what else ran on these. Kept apart, each side has what it has alone.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from benchmarks.benchmark import BenchmarkError

TASKS = Path("/proc/self/task")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreSplit:
    """Which core computes, and which one does the rest. For the thread that computes."""

    compute: int
    rest: int

    def place(self) -> None:
        """Puts every thread where it belongs: those that no Python code started are misplaced."""
        own = threading.get_native_id()
        for task in _tasks():
            _set(task, {self.compute if task == own else self.rest})

    def place_child(self, pid: int) -> None:
        """A process that was just started does the rest."""
        _set(pid, {self.rest})


@contextmanager
def core_split() -> Iterator[CoreSplit]:
    """The caller's thread has a core for itself, as far as this process and its children go.

    Threads that Python code starts meanwhile do the rest; call ``place`` for others, and
    ``place_child`` for processes. Raises BenchmarkError where there is one core only.
    """
    before = os.sched_getaffinity(0)
    split = _split_of(before)

    def place_thread(_frame: FrameType, _event: str, _argument: object) -> None:
        # A new thread calls it before it does anything.
        sys.setprofile(None)
        _set(threading.get_native_id(), {split.rest})

    split.place()
    threading.setprofile(place_thread)
    try:
        yield split
    finally:
        threading.setprofile(None)
        _set_all(before)


@contextmanager
def own_core() -> Iterator[CoreSplit]:
    """The process and the children that it makes have one core; ``place_child`` gives the other.

    Raises BenchmarkError where there is one core only.
    """
    before = os.sched_getaffinity(0)
    split = _split_of(before)
    try:
        _set_all({split.compute})
        yield split
    finally:
        _set_all(before)


def _split_of(cores: set[int]) -> CoreSplit:
    if len(cores) < 2:
        raise BenchmarkError("one core for each side takes two cores")
    return CoreSplit(compute=max(cores), rest=min(cores))


def _tasks() -> list[int]:
    return [int(task.name) for task in TASKS.iterdir()]


def _set_all(cores: set[int]) -> None:
    for task in _tasks():
        _set(task, cores)


def _set(task: int, cores: set[int]) -> None:
    try:
        os.sched_setaffinity(task, cores)
    except ProcessLookupError:
        return
