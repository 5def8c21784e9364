"""Deletions that were asked for together, as one."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future


def counted(deletions: Sequence[Future[bool]]) -> Future[int]:
    """How many deleted something, when all have ended; with the error of the first that failed."""
    total: Future[int] = Future()
    lock = threading.Lock()
    remaining = len(deletions)

    def end() -> None:
        errors = (deletion.exception() for deletion in deletions)
        error = next((one for one in errors if one is not None), None)
        if error is not None:
            total.set_exception(error)
        else:
            total.set_result(sum(deletion.result() for deletion in deletions))

    def one_is_done(_: Future[bool]) -> None:
        nonlocal remaining
        with lock:
            remaining -= 1
            is_last = remaining == 0
        if is_last:
            end()

    for deletion in deletions:
        deletion.add_done_callback(one_is_done)
    if not deletions:
        end()
    return total
