"""Host memory that a GPU reads and writes by itself."""

import logging

import numpy as np
import torch

LOGGER = logging.getLogger(__name__)


class PinnedMemory:
    """One stretch of memory that CUDA has registered, as long as it is there; not thread-safe.

    Memory of which CUDA takes no more (the limit of locked memory, say) is copied through CUDA's
    own buffers: a sentence in the log says so.
    """

    def __init__(self) -> None:
        self._memory: memoryview | None = None
        self._address = 0
        """0: nothing is registered."""

    def is_of(self, memory: memoryview) -> bool:
        """Whether it was given this memory last."""
        return self._memory is memory

    def register(self, memory: memoryview) -> None:
        """Registers all of it. What it had before is given up: no copy may use that any more."""
        self.release()
        self._memory = memory
        address = int(np.frombuffer(memory, np.uint8).ctypes.data)
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch has no types here
        # Without flags: as memory of cudaMallocHost is.
        error = int(runtime.cudaHostRegister(address, memory.nbytes, 0))
        if error:
            LOGGER.warning(
                "CUDA does not pin %d bytes of shared memory (error %d), so copies are slower and "
                "may wait for each other; look at the limit of locked memory (ulimit -l)",
                memory.nbytes,
                error,
            )
            return
        self._address = address

    def release(self) -> None:
        """Gives up what is registered; the memory may be unmapped then."""
        if self._address:
            runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch has no types here
            runtime.cudaHostUnregister(self._address)
        self._memory, self._address = None, 0
