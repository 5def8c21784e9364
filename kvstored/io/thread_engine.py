"""The I/O engine that is always available: a few threads for each device."""

import logging
from collections.abc import Sequence
from queue import SimpleQueue
from threading import Lock, Thread

from kvstored.io.device import Device, DeviceError
from kvstored.io.engine import IoRequest, Operation

_log = logging.getLogger(__name__)

_Queue = SimpleQueue[IoRequest | None]


class ThreadEngine:
    """Implements ``IoEngine``: at most ``depth`` requests of each device run at a time.

    A device's transfers release the interpreter lock, so that all threads wait in
    the kernel together. The devices belong to the caller, who closes them after the
    engine.
    """

    def __init__(self, devices: Sequence[Device], *, depth: int) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth}")
        self._lock = Lock()
        self._closed = False
        self._queues: list[_Queue] = [SimpleQueue() for _ in devices]
        self._threads = [
            Thread(
                target=_serve, args=(device, queue), name=f"io-{device_index}-{index}", daemon=True
            )
            for device_index, (device, queue) in enumerate(zip(devices, self._queues, strict=True))
            for index in range(depth)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, request: IoRequest) -> None:
        """Queues ``request``; raises IndexError for an unknown device, RuntimeError once closed."""
        queue = self._queues[request.device_index]
        with self._lock:
            if self._closed:
                raise RuntimeError("the I/O engine is closed and takes no more requests")
            queue.put(request)

    def close(self) -> None:
        """Runs what was submitted, then ends the threads. Not to be called by ``done``."""
        with self._lock:
            ends = 0 if self._closed else len(self._threads) // max(1, len(self._queues))
            self._closed = True
            for queue in self._queues:
                for _ in range(ends):
                    queue.put(None)
        for thread in self._threads:
            thread.join()


def _serve(device: Device, queue: _Queue) -> None:
    while _serve_one(device, queue):
        pass


def _serve_one(device: Device, queue: _Queue) -> bool:
    """Serves one request; False at the end of the queue.

    A function of its own so that no request, and with it no view of an arena,
    outlives its service while the thread waits for the next one.
    """
    request = queue.get()
    if request is None:
        return False
    error = _transfer(device, request)
    try:
        request.done(error)
    except Exception:
        _log.exception(
            "%s: the completion of a %s raised", device.facts.name, request.operation.value
        )
    return True


def _transfer(device: Device, request: IoRequest) -> DeviceError | None:
    try:
        if request.operation is Operation.READ:
            device.readv(request.buffers, request.offset)
        else:
            device.writev(request.buffers, request.offset)
    except DeviceError as error:
        return _detached(error)
    except Exception as error:
        # The completion is owed to the caller whatever went wrong.
        return _detached(DeviceError(device.facts.name, request.operation.value, repr(error)))
    return None


def _detached(error: DeviceError) -> DeviceError:
    """The error without its frames: they would keep the request's buffers alive."""
    error.__context__ = error.__cause__ = None
    return error.with_traceback(None)
