"""Which I/O engine serves a set of devices."""

import logging
from collections.abc import Sequence
from enum import StrEnum

from kvstored.io.device import Device
from kvstored.io.engine import IoEngine
from kvstored.io.ring import probe
from kvstored.io.ring_engine import RingEngine
from kvstored.io.thread_engine import ThreadEngine

_log = logging.getLogger(__name__)


class EngineKind(StrEnum):
    """How transfers are run; ``AUTO`` is io_uring where system and devices offer it."""

    AUTO = "auto"
    IO_URING = "io_uring"
    THREADS = "threads"


class EngineUnavailableError(OSError):
    """The engine that was asked for cannot run here; the message names the remedy."""


def open_engine(devices: Sequence[Device], *, kind: EngineKind, depth: int) -> IoEngine:
    """An engine with ``depth`` requests of each device in flight.

    Raises EngineUnavailableError when io_uring was asked for by name and is not there.
    """
    if kind is EngineKind.THREADS:
        return ThreadEngine(devices, depth=depth)
    obstacle = next((device.facts.name for device in devices if device.kernel_file() is None), None)
    if obstacle is None:
        try:
            probe()
            return RingEngine(devices, depth=depth)
        except OSError as error:
            obstacle = f"the system refuses it ({error.strerror})"
    else:
        obstacle = f"{obstacle} can only be served by threads"
    if kind is EngineKind.IO_URING:
        raise EngineUnavailableError(f"io_uring cannot be used: {obstacle}; set io.engine to auto")
    _log.info("no io_uring: %s; threads serve the devices", obstacle)
    return ThreadEngine(devices, depth=depth)
