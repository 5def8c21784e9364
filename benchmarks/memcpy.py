"""One thread's memory copy as the peer of hits in DRAM."""

import time

import numpy as np
from numpy.typing import NDArray


def populated(byte_count: int) -> NDArray[np.uint8]:
    """An array of shape [byte_count] whose pages are all resident."""
    memory = np.empty(byte_count, np.uint8)
    memory.fill(1)
    return memory


def copy_gb_per_s(source: NDArray[np.uint8], destination: NDArray[np.uint8]) -> float:
    """Copies equally long populated arrays once; the rate in 10^9 bytes a second."""
    start = time.perf_counter()
    np.copyto(destination, source)
    return source.nbytes / (time.perf_counter() - start) / 1e9
