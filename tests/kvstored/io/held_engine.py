"""An I/O engine that runs nothing: the test ends each request."""

from threading import Event

from kvstored.io.device import DeviceError
from kvstored.io.engine import IoRequest


class HeldEngine:
    """Implements ``IoEngine``. ``held`` are the requests in flight, in order of submission."""

    def __init__(self) -> None:
        self.held: list[IoRequest] = []
        self.started = Event()
        self.is_closed = False

    def submit(self, request: IoRequest) -> None:
        self.held.append(request)
        self.started.set()

    def end(self, index: int = 0, error: DeviceError | None = None) -> None:
        self.held.pop(index).done(error)

    def close(self) -> None:
        self.is_closed = True
