import os
import subprocess
import sys
import threading

import pytest

from benchmarks.benchmark import BenchmarkError
from benchmarks.core_split import core_split, own_core

needs_two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="one core for each side takes two"
)


def cores_of_new_thread() -> set[int]:
    """A profile function is called in the thread before what it was started for."""
    found: list[set[int]] = []
    thread = threading.Thread(target=lambda: found.append(os.sched_getaffinity(0)))
    thread.start()
    thread.join()
    return found[0]


@needs_two_cores
def test_each_side_has_a_core_and_everything_is_as_before_in_the_end() -> None:
    before = os.sched_getaffinity(0)
    stop = threading.Event()
    earlier = threading.Thread(target=stop.wait)
    earlier.start()
    earlier_id = earlier.native_id
    assert earlier_id is not None
    try:
        with core_split() as split:
            assert split.compute != split.rest
            assert os.sched_getaffinity(0) == {split.compute}
            assert os.sched_getaffinity(earlier_id) == {split.rest}
            assert cores_of_new_thread() == {split.rest}
            os.sched_setaffinity(earlier_id, before)
            split.place()
            assert os.sched_getaffinity(earlier_id) == {split.rest}
        assert os.sched_getaffinity(0) == before
        assert os.sched_getaffinity(earlier_id) == before
        assert cores_of_new_thread() == before
    finally:
        stop.set()
        earlier.join()


@needs_two_cores
def test_a_process_has_a_core_with_its_children() -> None:
    before = os.sched_getaffinity(0)
    with own_core() as split:
        assert split.compute != split.rest
        assert os.sched_getaffinity(0) == cores_of_new_thread() == {split.compute}
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        assert os.sched_getaffinity(child.pid) == {split.compute}
        split.place_child(child.pid)
        assert os.sched_getaffinity(child.pid) == {split.rest}
    assert os.sched_getaffinity(0) == cores_of_new_thread() == before
    child.communicate(b"\n")


@needs_two_cores
def test_a_child_does_the_rest() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with core_split() as split:
        split.place_child(child.pid)
        assert os.sched_getaffinity(child.pid) == {split.rest}
    child.communicate(b"\n")
    split.place_child(child.pid)


def test_one_core_cannot_be_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with pytest.raises(BenchmarkError, match="takes two cores"), core_split():
        pass
