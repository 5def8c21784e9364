import threading
from typing import Any

import pytest

from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.model.errors import RequestError
from engine_adapters.runner.model.model import Model
from engine_adapters.server.running.engine_thread import EngineThread
from engine_adapters.server.running.job import Job, Outcome
from engine_adapters.server.running.shared_sink import SharedSink

WAIT_S = 20.0


class Waiter:
    """Ends its job after ``wanted`` tokens, or never."""

    def __init__(self, wanted: int | None = None) -> None:
        self.taken: list[int] = []
        self.outcomes: list[Outcome] = []
        self.began, self.ended = threading.Event(), threading.Event()
        self._wanted = wanted

    def take(self, token_id: int) -> bool:
        self.taken.append(token_id)
        self.began.set()
        return len(self.taken) == self._wanted

    def end(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.ended.set()

    def outcome(self) -> Outcome:
        assert self.ended.wait(WAIT_S)
        (outcome,) = self.outcomes
        return outcome


@pytest.fixture
def engine(served: Model) -> Any:
    sink = SharedSink()
    made = Engine(served, cache_tokens=1024, sink=sink)
    thread = EngineThread(made, sink)
    yield thread
    thread.stop()
    assert made._pool.free_count == 1024
    assert sink.request_count == 0


def job(listener: Waiter, count: int = 900) -> Job:
    # Without a namespace nothing of it is announced.
    return Job(prompt=[1, 2, 3], new_tokens_max=count, listener=listener)


@pytest.fixture(autouse=True)
def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody saves what belongs to no namespace."""
    monkeypatch.setattr(SharedSink, "begin_request", lambda *_: None)
    monkeypatch.setattr(SharedSink, "end_request", lambda *_: None)


def test_tokens_come_one_by_one(engine: EngineThread) -> None:
    waiter = Waiter()
    engine.submit(job(waiter, 5))
    completion = waiter.outcome()
    assert isinstance(completion, Completion)
    assert list(completion.generated_ids) == waiter.taken
    assert len(waiter.taken) == 5


def test_a_listener_ends_its_own_job(engine: EngineThread) -> None:
    one, other = Waiter(2), Waiter(4)
    for waiter in (one, other):
        engine.submit(job(waiter))
    for waiter, count in ((one, 2), (other, 4)):
        completion = waiter.outcome()
        assert isinstance(completion, Completion)
        assert len(completion.generated_ids) == count


def test_a_job_that_was_not_taken_never_ended(
    engine: EngineThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: its client waited for ever, and nobody else was served any more."""
    one, other = Waiter(), Waiter(2)
    add_request = Engine.add_request

    def refuse(*_: object, **__: object) -> int:
        monkeypatch.setattr(Engine, "add_request", add_request)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Engine, "add_request", refuse)
    engine.submit(job(one))
    assert isinstance(one.outcome(), RuntimeError)
    engine.submit(job(other))
    assert isinstance(other.outcome(), Completion)


def test_an_aborted_job_ends_without_an_answer(engine: EngineThread) -> None:
    waiter, after = Waiter(), Waiter()
    aborted = job(waiter)
    engine.submit(aborted)
    assert waiter.began.wait(WAIT_S)
    engine.abort(aborted)
    engine.abort(aborted)
    assert waiter.outcome() is None
    engine.submit(job(after, 2))
    assert isinstance(after.outcome(), Completion)


def test_what_can_never_run_is_an_error(engine: EngineThread) -> None:
    waiter = Waiter()
    refused = job(waiter, 2000)
    engine.submit(refused)
    assert isinstance(waiter.outcome(), RequestError)
    engine.abort(refused)


def test_stopping_ends_every_job(engine: EngineThread) -> None:
    running, late = Waiter(), Waiter()
    engine.submit(job(running))
    assert running.began.wait(WAIT_S)
    engine.stop()
    assert running.outcome() is None
    assert not engine.is_alive
    engine.submit(job(late))
    engine.stop()
    assert late.outcome() is None


def test_a_job_that_came_after_the_end_never_ended(engine: EngineThread) -> None:
    """Bug: nobody read its order any more, and a server that stopped waited for it for ever."""
    engine.stop()
    late = Waiter()
    submitted = job(late)
    engine.submit(submitted)
    engine.abort(submitted)
    assert late.outcomes == [None]


def test_a_job_that_comes_too_late_for_the_thread_ends_with_the_stop(
    engine: EngineThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, join = Waiter(), engine._thread.join

    def join_and_submit() -> None:
        join()
        engine.submit(job(late))
        assert late.outcomes == []

    with monkeypatch.context() as stopping:
        stopping.setattr(engine._thread, "join", join_and_submit)
        engine.stop()
    assert late.outcomes == [None]


def test_an_engine_that_fails_ends_every_job(
    engine: EngineThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running, late = Waiter(), Waiter()
    error = OSError("no memory")

    def fail() -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(engine._engine, "step", fail)
        engine.submit(job(running))
        assert running.outcome() is error
    assert not engine.is_alive
    engine.submit(job(late))
    assert late.outcome() is error
    assert "the engine failed" in caplog.text
    for request_id in list(engine._engine._running) + list(engine._engine._waiting._requests):
        engine._engine.abort(request_id)
