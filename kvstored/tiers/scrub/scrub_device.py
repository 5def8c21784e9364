"""A device as the scrub sees it: read only, slowly, and behind everything that others wait for."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from kvstored.counters import Counters
from kvstored.io.device import Device, DeviceError
from kvstored.io.engine import Background, IoEngine, IoRequest, Operation
from kvstored.io.passing import PassingDevice
from kvstored.tiers.scrub.scrub_pace import Pace


class ScrubStopped(Exception):  # noqa: N818 - nothing is wrong: the daemon stops
    """The scrub ended while it read or waited until it may."""


class Pacer:
    """Lets one thread go on at a pace, until ``stop`` is set."""

    def __init__(
        self, pace: Pace, stop: threading.Event, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._pace = pace
        self._stop = stop
        self._clock = clock

    def wait(self, byte_count: int) -> None:
        """Returns when so many bytes may be read; raises ScrubStopped as soon as it is to end."""
        if self._stop.wait(self._pace.take(byte_count, self._clock())):
            raise ScrubStopped


class ScrubDevice(PassingDevice):
    """Reads ``inner`` through an engine, for one thread that only reads.

    ``readv`` waits for its turn. What was read adds to the counter ``scrub_bytes`` and to
    ``read_bytes``. ``on_error`` hears of every transfer that failed, with the device's
    index; ``errors_in_a_row`` counts them until the owner sets it back.
    """

    def __init__(
        self,
        inner: Device,
        device_index: int,
        *,
        engine: IoEngine,
        pacer: Pacer,
        counters: Counters,
        on_error: Callable[[int, DeviceError], None],
    ) -> None:
        super().__init__(inner)
        self._device_index = device_index
        self._engine = engine
        self._pacer = pacer
        self._counters = counters
        self._on_error = on_error
        self.read_bytes = 0
        self.errors_in_a_row = 0

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Fills ``buffers`` when it is their turn; raises DeviceError or ScrubStopped."""
        byte_count = sum(buffer.nbytes for buffer in buffers)
        self._pacer.wait(byte_count)
        outcome: Future[DeviceError | None] = Future()
        self._engine.submit(
            IoRequest(
                device_index=self._device_index,
                operation=Operation.READ,
                buffers=tuple(buffers),
                offset=offset,
                done=outcome.set_result,
                background=Background.SCRUB,
            )
        )
        error = outcome.result()
        if error is not None:
            self.errors_in_a_row += 1
            self._on_error(self._device_index, error)
            raise error
        self.read_bytes += byte_count
        self._counters.add("scrub_bytes", byte_count)

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        """Raises DeviceError."""
        _ = buffers, offset
        raise DeviceError(self.facts.name, "write", "a scrub only reads")

    def flush(self) -> None:
        """Raises DeviceError."""
        raise DeviceError(self.facts.name, "flush", "a scrub only reads")

    def close(self) -> None:
        """The inner device belongs to others and stays open."""
