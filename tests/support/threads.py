"""Calls on threads of their own."""

import threading
from collections.abc import Callable


def together(*calls: Callable[[], object]) -> None:
    """Makes each call on a thread of its own; raises what one of them raised."""
    failures: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
