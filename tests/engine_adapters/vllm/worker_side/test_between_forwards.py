import threading
from concurrent.futures import Future

import pytest

from engine_adapters.vllm.worker_side import between_forwards
from engine_adapters.vllm.worker_side.between_forwards import BetweenForwards
from tests.support.waiting import wait_until


def in_thread(between: BetweenForwards, task: object) -> tuple[threading.Thread, list[object]]:
    results: list[object] = []

    def run() -> None:
        try:
            results.append(between.run(task))  # type: ignore[arg-type]
        except ValueError as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def served(between: BetweenForwards, thread: threading.Thread) -> None:
    def serve() -> bool:
        between.serve()
        return not thread.is_alive()

    wait_until(serve)


def test_task_runs_where_it_is_served() -> None:
    between = BetweenForwards()
    threads: list[threading.Thread] = []

    def task() -> bool:
        threads.append(threading.current_thread())
        return True

    thread, results = in_thread(between, task)
    served(between, thread)
    assert results == [True]
    assert threads == [threading.current_thread()]


def test_what_a_task_raises_is_raised_where_it_was_asked_for() -> None:
    between = BetweenForwards()

    def task() -> bool:
        raise ValueError("no")

    thread, results = in_thread(between, task)
    served(between, thread)
    assert isinstance(results[0], ValueError)


def test_task_that_ends_when_the_waiting_does_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: a chunk that was filled at that moment counted as lost."""

    class Late(Future[bool]):
        def result(self, timeout: float | None = None) -> bool:
            if timeout is None:
                return super().result()
            self.set_result(True)
            raise TimeoutError

    monkeypatch.setattr(between_forwards, "Future", Late)
    assert BetweenForwards().run(lambda: True)


def test_timeout_of_a_task_is_raised() -> None:
    between = BetweenForwards()

    def task() -> bool:
        raise TimeoutError("its own")

    def serve() -> bool:
        between.serve()
        return bool(errors)

    errors: list[str] = []

    def run() -> None:
        try:
            between.run(task)
        except TimeoutError as error:
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(serve)
    thread.join(30)
    assert errors == ["its own"]


def test_end_of_the_engine_wakes_who_waits() -> None:
    between = BetweenForwards()
    thread, results = in_thread(between, lambda: True)
    wait_until(lambda: between._tasks.qsize() == 1)
    between.close()
    thread.join(30)
    between.serve()
    assert results == [False]


def test_serving_nothing_returns_at_once() -> None:
    BetweenForwards().serve()


@pytest.mark.parametrize("answer", [True, False])
def test_answer_is_passed_on(answer: bool) -> None:
    between = BetweenForwards()
    thread, results = in_thread(between, lambda: answer)
    served(between, thread)
    assert results == [answer]
