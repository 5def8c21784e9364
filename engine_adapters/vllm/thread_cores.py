"""Which cores the connector's threads run on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

BINDINGS = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES")
"""By one of these vLLM tells a CPU worker's OpenMP which cores are its own."""


@contextmanager
def unbound_threads() -> Iterator[None]:
    """Threads that start within are not bound to the core that the caller computes on.

    vLLM binds the computing threads of a CPU worker, and keeps a core free for its connector
    (VLLM_CPU_OMP_THREADS_BIND). What any thread starts inherits its one core: loads would take
    turns with computing there. The process that started the worker is not bound, so that its cores
    are those that the engine may use. Nothing is changed where nothing is bound, or where the
    system does not allow it.
    """
    bound = os.sched_getaffinity(0)
    is_unbound = _leave(bound)
    try:
        yield
    finally:
        if is_unbound:
            os.sched_setaffinity(0, bound)


def _leave(bound: set[int]) -> bool:
    if not any(map(os.environ.get, BINDINGS)):
        return False
    try:
        cores = os.sched_getaffinity(os.getppid())
        if not bound < cores:
            return False
        os.sched_setaffinity(0, cores)
    except OSError:
        return False
    return True
