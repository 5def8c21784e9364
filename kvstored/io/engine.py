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


class Foreground(Enum):
    """What clients ask for, the most urgent first: what one waits for, and what was put."""

    READ = "read"
    WRITE = "write"


class Background(Enum):
    """Work that nobody waits for, the most urgent first.

    Every kind is traffic of its own with a share of its own, so that none can take what
    another needs: PREFETCH brings what waiting requests need into DRAM, PROMOTION what is read
    again and again, SCRUB verifies what is stored, second
    looks at damage included. ``SchedulePolicy`` gives a new member its share.
    """

    PREFETCH = "prefetch"
    PROMOTION = "promotion"
    SCRUB = "scrub"


Traffic = Foreground | Background
"""The class by which a request is scheduled."""
TRAFFIC: tuple[Traffic, ...] = (*Foreground, *Background)
"""All classes, the most urgent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IoRequest:
    """One transfer between memory and one device.

    ``done`` is called exactly once, on an engine thread, with the error or None; it
    must not block and must not raise. Until then the buffers belong to the engine. Clients
    wait for reads, and not for writes, unless the request is ``background``, or
    ``is_awaited``: a write that is as urgent as a read.
    """

    device_index: int
    operation: Operation
    buffers: tuple[memoryview, ...]
    offset: int
    done: Callable[[DeviceError | None], None]
    background: Background | None = None
    is_awaited: bool = False

    @property
    def traffic(self) -> Traffic:
        """The class by which the request is scheduled."""
        if self.background is not None:
            return self.background
        is_urgent = self.is_awaited or self.operation is Operation.READ
        return Foreground.READ if is_urgent else Foreground.WRITE


class IoEngine(Protocol):
    """Runs requests. Those of one class to one device start in the order of submission."""

    def submit(self, request: IoRequest) -> None:
        """Queues one request and returns at once. Callable from any thread.

        Where it raises, nothing is transferred and ``done`` is never called.
        """

    def close(self) -> None:
        """Waits for every submitted request and ends the engine's threads."""
