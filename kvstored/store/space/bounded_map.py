"""A map over threads that never runs far ahead of the caller that takes the results."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def bounded_map(
    executor: Executor, function: Callable[[Item], Result], items: Iterable[Item], *, depth: int
) -> Iterator[Result]:
    """Results of ``function`` in the order of ``items``, with ``depth`` calls at most under way.

    Raises what a call raised; calls under way then still end.
    """
    running: deque[Future[Result]] = deque()
    for item in items:
        if len(running) == depth:
            yield running.popleft().result()
        running.append(executor.submit(function, item))
    while running:
        yield running.popleft().result()
