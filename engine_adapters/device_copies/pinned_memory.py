"""Host memory that a GPU reads and writes by itself."""

import logging
import threading

import numpy as np
import torch

LOGGER = logging.getLogger(__name__)
ALREADY_REGISTERED = 712
"""CUDA's cudaErrorHostMemoryAlreadyRegistered."""


class PinnedMemory:
    """One stretch of memory that CUDA has registered, as long as it is there; not thread-safe.

    Memory of which CUDA takes no more (the limit of locked memory, say) is copied through CUDA's
    own buffers: a sentence in the log says so.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory: memoryview | None = None
        self._address = 0
        """0: nothing is registered."""

    def is_of(self, memory: memoryview) -> bool:
        """Whether it was given this memory last."""
        return self._memory is memory

    def register(self, memory: memoryview) -> None:
        """Registers all of it. What it had before is given up: no copy may use that any more.

        By a thread of its own: CUDA remembers a refusal as the last error of the thread, and the
        next kernel that this one launches would raise it.
        """
        thread = threading.Thread(target=self._register, args=(memory,), name="kvstored-pin")
        thread.start()
        thread.join()

    def _register(self, memory: memoryview) -> None:
        torch.cuda.set_device(self._device)
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch has no types here
        if self._address:
            runtime.cudaHostUnregister(self._address)
        self._memory, self._address = memory, 0
        address = int(np.frombuffer(memory, np.uint8).ctypes.data)
        # Without flags: as memory of cudaMallocHost is.
        error = int(runtime.cudaHostRegister(address, memory.nbytes, 0))
        if error == ALREADY_REGISTERED:
            # By other copies of this process, which give it up themselves.
            return
        if error:
            LOGGER.warning(
                "CUDA does not pin %d bytes of shared memory (error %d), so copies are slower and "
                "may wait for each other; look at the limit of locked memory (ulimit -l)",
                memory.nbytes,
                error,
            )
            return
        self._address = address
