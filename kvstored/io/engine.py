"""The protocol of an I/O engine: it runs requests against devices and reports each once."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from kvstored.io.device import DeviceError


class Operation(Enum):
    """What a request does."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True, kw_only=True)
class IoRequest:
    """One transfer between memory and one device.

    ``done`` is called exactly once, on an engine thread, with the error or None; it
    must not block and must not raise. Until then the buffers belong to the engine.
    """

    device_index: int
    operation: Operation
    buffers: tuple[memoryview, ...]
    offset: int
    done: Callable[[DeviceError | None], None]


class IoEngine(Protocol):
    """Runs requests. Requests to one device start in the order of their submission."""

    def submit(self, request: IoRequest) -> None:
        """Queues one request and returns at once. Callable from any thread."""

    def close(self) -> None:
        """Waits for every submitted request and ends the engine's threads."""
