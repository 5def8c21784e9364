"""Asks a store what it has, and does not wait for one that is silent."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait

from kvstored_client import Client, Lease, Match, StateLayout

THREAD_NAME = "kvstored-match"
LOOK_S = 0.01
"""How often the clock is looked at while there is no answer."""


def match_within(
    client: Client,
    layout: StateLayout,
    keys: Sequence[bytes],
    *,
    lease_ms: int,
    wait_s: float,
    clock: Callable[[], float],
) -> Match[Lease] | None:
    """As ``Client.match`` with a lease; None where no answer has come after ``wait_s``.

    The call then goes on, and what it keeps from eviction is released when it ends. Raises what
    the call raises.
    """
    answer: Future[Match[Lease]] = Future()

    def ask() -> None:
        try:
            answer.set_result(client.match(layout, keys, lease_ms=lease_ms))
        except BaseException as error:  # its caller raises it
            answer.set_exception(error)

    end_s = clock() + wait_s
    threading.Thread(target=ask, name=THREAD_NAME, daemon=True).start()
    while not answer.done() and (left_s := end_s - clock()) > 0:
        wait([answer], timeout=min(left_s, LOOK_S))
    if answer.done():
        return answer.result()
    answer.add_done_callback(_release)
    return None


def _release(answer: Future[Match[Lease]]) -> None:
    """Nobody uses what was found."""
    if answer.exception() is None and (lease := answer.result().lease) is not None:
        lease.release()
