"""Host memory that a GPU reads and writes by itself."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

LOGGER = logging.getLogger(__name__)


@dataclass(slots=True)
class _Registration:
    """A stretch of memory that CUDA has registered, and for how many it has."""

    memory: memoryview
    """Keeps the memory mapped."""
    holder_count: int = 0


class PinnedMemories:
    """What this process has registered with CUDA. Thread-safe.

    Invariant: registered memory stays mapped until it is unregistered. CUDA goes by addresses: it
    would copy from and to the pages that were there before, also when something else lies at the
    address by then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_address: dict[int, _Registration] = {}
        self._dropped: deque[Callable[[], None]] = deque()

    def take(self, memory: memoryview, device: torch.device) -> int:
        """Registers it unless somebody did; its address, 0 where CUDA does not take it."""
        address = int(np.frombuffer(memory, np.uint8).ctypes.data)
        self._give_back_dropped()
        with self._lock:
            found = self._by_address.get(address)
            if found is None:
                error = int(_in_thread(device, _register, address, memory.nbytes))
                if error:
                    LOGGER.warning(
                        "CUDA does not pin %d bytes of shared memory (error %d), so copies are "
                        "slower and may wait for each other; look at the limit of locked memory "
                        "(ulimit -l)",
                        memory.nbytes,
                        error,
                    )
                    return 0
                found = self._by_address[address] = _Registration(memory)
            found.holder_count += 1
        return address

    def give_back(self, address: int, device: torch.device) -> None:
        """Ends one ``take``: copies for which it was taken may not use the memory any more."""
        with self._lock:
            found = self._by_address[address]
            found.holder_count -= 1
            if found.holder_count:
                return
            if error := _in_thread(device, _unregister, address):
                # It stays mapped for ever, rather than be copied when something else lies there.
                LOGGER.warning("CUDA does not unregister shared memory (error %d)", error)
                return
            del self._by_address[address]

    def drop(self, give_back: Callable[[], None]) -> None:
        """Has ``give_back`` called by the next ``take``; until then the memory stays mapped.

        For finalizers, which take no lock and call no CUDA: the interpreter runs them in the midst
        of whatever a thread does, and be it this.
        """
        self._dropped.append(give_back)

    def _give_back_dropped(self) -> None:
        while True:
            try:
                give_back = self._dropped.popleft()
            except IndexError:
                return
            try:
                give_back()
            except Exception:
                LOGGER.exception("memory that nobody uses any more stays registered with CUDA")


_OF_PROCESS: Final = PinnedMemories()
"""All copies of a process share it, as they share CUDA's context."""


class PinnedMemory:
    """One stretch of memory that CUDA has registered as long as this has it; not thread-safe.

    Others of this process may have the same one: it is registered for all of them. Memory of which
    CUDA takes no more (the limit of locked memory, say) is copied through CUDA's own buffers: a
    sentence in the log says so.
    """

    def __init__(self, device: torch.device, memories: PinnedMemories = _OF_PROCESS) -> None:
        self._device = device
        self._memories = memories
        self._memory: memoryview | None = None
        self._address = 0
        """0: nothing is registered."""

    def is_of(self, memory: memoryview) -> bool:
        """Whether it was given this memory last."""
        return self._memory is memory

    def register(self, memory: memoryview | None) -> None:
        """Registers all of it. What it had before is given up: no copy may use that any more."""
        address, self._memory, self._address = self._address, None, 0
        if address:
            self._memories.give_back(address, self._device)
        if memory is not None:
            self._memory, self._address = memory, self._memories.take(memory, self._device)

    def drop(self, finish: Callable[[], None]) -> None:
        """Gives it up later, after ``finish``; for a finalizer."""

        def give_back() -> None:
            finish()
            self.register(None)

        if self._address:
            self._memories.drop(give_back)


def _register(address: int, byte_count: int) -> int:
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch has no types here
    # Without flags: as memory of cudaMallocHost is.
    return int(runtime.cudaHostRegister(address, byte_count, 0))


def _unregister(address: int) -> int:
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch has no types here
    return int(runtime.cudaHostUnregister(address))


def _in_thread(device: torch.device, call: Callable[..., int], *arguments: Any) -> int:
    """What a call of CUDA returns, made by a thread of its own.

    CUDA remembers a refusal as the last error of the thread, and the next kernel that this one
    launches would raise it.
    """
    results: list[int] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            torch.cuda.set_device(device)
            results.append(call(*arguments))
        except BaseException as error:
            failures.append(error)

    # No executor: an engine that ends with the interpreter closes when these start nothing more.
    thread = threading.Thread(target=run, name="kvstored-pin")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]
