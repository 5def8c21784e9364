"""Which cores the connector's threads run on."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

LOGGER = logging.getLogger("vllm.kvstored")
BINDINGS = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES")
"""By one of these vLLM tells a CPU worker's OpenMP which cores are its own."""


@contextmanager
def unbound_threads() -> Iterator[None]:
    """Threads that start within are not bound to what the caller computes on.

    vLLM binds the computing threads of a CPU worker to cores (VLLM_CPU_OMP_THREADS_BIND). What any
    thread starts inherits its own: loads would take turns with computing there. The process that
    started the worker is not bound, so that its cores are those that the engine may use; by
    "auto" vLLM leaves some of them free. Nothing is changed where nothing is bound, or where the
    system does not allow it.
    """
    bound = _leave() if any(map(os.environ.get, BINDINGS)) else None
    try:
        yield
    finally:
        if bound is not None:
            _return(bound)


def _leave() -> set[int] | None:
    """Gives the calling thread its parent's cores; those that it had, None where it keeps them."""
    try:
        bound, cores = os.sched_getaffinity(0), os.sched_getaffinity(os.getppid())
        if not bound < cores:
            return None
        os.sched_setaffinity(0, cores)
    except OSError:
        return None
    return bound


def _return(bound: set[int]) -> None:
    try:
        os.sched_setaffinity(0, bound)
    except OSError as error:
        LOGGER.warning("kvstored cannot bind a thread of the engine to %s again: %s", bound, error)
