"""A pool that has all of its threads from the start."""

import threading
from concurrent.futures import ThreadPoolExecutor


def started_pool(thread_count: int, name: str) -> ThreadPoolExecutor:
    """Threads that call functions; ``submit`` never starts one, so that it fails for lack of none.

    Raises RuntimeError here where the process may have no more of them.
    """
    pool = ThreadPoolExecutor(thread_count, thread_name_prefix=name)
    all_wait = threading.Barrier(thread_count)
    try:
        for _ in range(thread_count):
            # Each waits for the last one, so that none is idle and the next one is started.
            pool.submit(all_wait.wait)
    except RuntimeError:
        all_wait.abort()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    return pool
