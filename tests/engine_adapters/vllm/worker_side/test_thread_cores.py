import os
import threading

import pytest

from engine_adapters.vllm.worker_side.thread_cores import BINDINGS, LOGGER, unbound_threads

needs_two_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(os.getppid())) < 2, reason="needs two cores"
)


def cores_of_a_worker() -> tuple[set[int], set[int], set[int]]:
    """Cores of a thread that was bound to one, of one that it starts within, and its own behind."""
    seen: list[set[int]] = []

    def look() -> None:
        seen.append(os.sched_getaffinity(0))

    def worker() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(os.getppid()))})
        look()
        with unbound_threads():
            started = threading.Thread(target=look)
            started.start()
            started.join()
        look()

    thread = threading.Thread(target=worker)
    thread.start()
    thread.join()
    before, within, behind = seen
    return before, within, behind


@needs_two_cores
@pytest.mark.parametrize("binding", BINDINGS)
def test_threads_of_a_bound_worker_leave_its_core(
    monkeypatch: pytest.MonkeyPatch, binding: str
) -> None:
    """Bug: vLLM's CPU workers loaded and saved on the core of their first computing thread."""
    monkeypatch.setenv(binding, "0")
    before, within, behind = cores_of_a_worker()
    assert within == os.sched_getaffinity(os.getppid())
    assert behind == before
    assert len(before) == 1


def test_what_a_user_has_bound_stays_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for binding in BINDINGS:
        monkeypatch.delenv(binding, raising=False)
    before, within, behind = cores_of_a_worker()
    assert before == within == behind


@needs_two_cores
def test_binding_ends_with_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BINDINGS[0], "0")
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(own)})
    try:
        with pytest.raises(ValueError, match="no room"), unbound_threads():
            raise ValueError("no room")
        assert os.sched_getaffinity(0) == {min(own)}
    finally:
        os.sched_setaffinity(0, own)


def test_what_the_system_does_not_allow_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the engine's thread: nothing may be raised there."""
    monkeypatch.setenv(BINDINGS[0], "0")
    own = os.sched_getaffinity(0)
    monkeypatch.setattr(os, "getppid", lambda: 2**22 + 1)
    with unbound_threads():
        assert os.sched_getaffinity(0) == own
    assert os.sched_getaffinity(0) == own


@needs_two_cores
def test_core_that_has_gone_meanwhile_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(LOGGER, "warning", lambda text, *values: told.append(text % values))
    monkeypatch.setenv(BINDINGS[0], "0")
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(own)})
    change = os.sched_setaffinity

    def refuse(*_: object) -> None:
        raise OSError("no such core")

    try:
        with unbound_threads():
            monkeypatch.setattr(os, "sched_setaffinity", refuse)
    finally:
        change(0, own)
    (sentence,) = told
    assert sentence.endswith("again: no such core")
