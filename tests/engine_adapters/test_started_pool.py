import threading

import pytest

from engine_adapters.started_pool import started_pool


def no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_no_thread_is_started_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with started_pool(3, "a name") as pool:
        assert sum(one.name.startswith("a name") for one in threading.enumerate()) == 3
        monkeypatch.setattr(threading.Thread, "start", no_thread)
        both = threading.Barrier(3)
        running = [pool.submit(both.wait) for _ in range(3)]
        assert sorted(one.result() for one in running) == [0, 1, 2]


def test_where_one_cannot_be_started_the_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    start, left = threading.Thread.start, [2]

    def start_two(thread: threading.Thread) -> None:
        if not left[0]:
            no_thread(thread)
        left[0] -= 1
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_two)
    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="new thread"):
        started_pool(3, "a name")
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()
