"""The protocol of an I/O engine: it runs requests against devices and reports each once."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Protocol

from kvstored.io.device import DeviceError


class Operation(Enum):
    """What a request does."""

    READ = "read"
    WRITE = "write"


class Traffic(IntEnum):
    """For whom a request runs, the most urgent first.

    READ is what a client waits for, WRITE is what was put; BACKGROUND is everything that
    nobody waits for: promotion, a second look at damage, scrub.
    """

    READ = 0
    WRITE = 1
    BACKGROUND = 2


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
    is_background: bool = False

    @property
    def traffic(self) -> Traffic:
        """The class by which the request is scheduled."""
        if self.is_background:
            return Traffic.BACKGROUND
        return Traffic.READ if self.operation is Operation.READ else Traffic.WRITE


class IoEngine(Protocol):
    """Runs requests. Those of one class to one device start in the order of submission."""

    def submit(self, request: IoRequest) -> None:
        """Queues one request and returns at once. Callable from any thread."""

    def close(self) -> None:
        """Waits for every submitted request and ends the engine's threads."""
