"""Full collections of the interpreter, as often as they may cost something.

CPython keeps the tuples that are freed, up to 2,000 of each length, and makes new ones from them.
One that is made from a generator is made too large first and cut to its length. So each of these
lists may grow with every call, and only a full collection empties them. By itself the interpreter
makes next to none in a daemon whose objects stay.
"""

import asyncio
import gc
import time

INTERVAL_S = 30.0
TIME_SHARE_MAX = 0.001
"""Part of the time that collections take: nothing else of the daemon runs meanwhile."""


def wait_s(interval_s: float, took_s: float) -> float:
    """How long no collection follows one that took so long."""
    return max(interval_s, took_s / TIME_SHARE_MAX)


async def collect_all(interval_s: float = INTERVAL_S) -> None:
    """Makes full collections now and then, until it is cancelled."""
    took_s = 0.0
    while True:
        await asyncio.sleep(wait_s(interval_s, took_s))
        began_s = time.perf_counter()
        gc.collect()
        took_s = time.perf_counter() - began_s
