"""What takes the place of threads while a state is looked at, and what listens to the log."""

import logging
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Any

from kvstored.io.device import Device, DeviceError
from kvstored.io.engine import IoRequest, Operation


class InlineEngine:
    """An I/O engine without threads: memory answers at once."""

    def __init__(self, devices: Sequence[Device], **_: object) -> None:
        self._devices = devices

    def submit(self, request: IoRequest) -> None:
        """Transfers and completes, in the caller's thread."""
        device = self._devices[request.device_index]
        try:
            if request.operation is Operation.READ:
                device.readv(request.buffers, request.offset)
            else:
                device.writev(request.buffers, request.offset)
        except DeviceError as error:
            request.done(error)
        else:
            request.done(None)

    def close(self) -> None:
        """Nothing is left to be done."""


class InlineExecutor(Executor):
    """Runs what is submitted at once: the chunks are too small to be worth a thread."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()

    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        """The result, or the error, as a future."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments, **options))
        except Exception as error:
            future.set_exception(error)
        return future


class Warnings(logging.Handler):
    """Keeps what is logged above the level of information."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
