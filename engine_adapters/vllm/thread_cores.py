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
    are those that the engine may use. Nothing is changed where nothing is bound.
    """
    bound = os.sched_getaffinity(0)
    cores = os.sched_getaffinity(os.getppid()) if any(map(os.environ.get, BINDINGS)) else bound
    if not bound < cores:
        yield
        return
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, bound)
