"""The I/O engine on io_uring: a few rings, each with one thread, serve all devices.

The thread only takes completions. Compared with a thread for each transfer in flight it
saves the wake-ups: with many threads the interpreter lock goes from hand to hand, which
costs more than the transfers.
"""

import ctypes
import logging
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock, Thread

import numpy as np

from kvstored.io.device import Device, DeviceError
from kvstored.io.engine import IoRequest, Operation
from kvstored.io.ring import Completion, Opcode, Ring
from kvstored.io.transfer import batches

_log = logging.getLogger(__name__)

_STOP = 0
_RETRY_INTERVAL_S = 0.001
_OPCODES = {Operation.READ: Opcode.READV, Operation.WRITE: Opcode.WRITEV}


class RingEngine:
    """Implements ``IoEngine``: at most ``depth`` requests of each device run at a time.

    Every device must have a ``kernel_file``. The devices belong to the caller, who
    closes them after the engine. ``thread_count`` is ``ring_threads`` of this machine if
    not given. Raises OSError where the system offers no io_uring.
    """

    def __init__(
        self, devices: Sequence[Device], *, depth: int, thread_count: int | None = None
    ) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth}")
        if thread_count is None:
            thread_count = ring_threads(len(devices), len(os.sched_getaffinity(0)))
        queues = [_Queue(device, depth) for device in devices]
        self._servers: list[_Server] = []
        try:
            for number in range(thread_count):
                entries = depth * len(queues[number::thread_count]) + 1
                self._servers.append(_Server(number, entries=entries))
        except BaseException:
            self.close()
            raise
        self._places = [
            (self._servers[index % thread_count], queue) for index, queue in enumerate(queues)
        ]

    def submit(self, request: IoRequest) -> None:
        """Queues ``request``; raises IndexError for an unknown device, RuntimeError once closed."""
        server, queue = self._places[request.device_index]
        server.submit(queue, request)

    def close(self) -> None:
        """Runs what was submitted, then ends the threads. Not to be called by ``done``."""
        for server in self._servers:
            server.close()


def ring_threads(device_count: int, core_count: int) -> int:
    """How many threads take the completions of all devices.

    One for each device while they have cores of their own beside the clients': with two
    threads on two cores the interpreter lock changes hands for every transfer, which
    costs a third more CPU time and some of the rate.
    """
    return max(1, min(device_count, core_count // 2))


class _Queue:
    """One device's requests: how many are in the ring, and those that wait behind them."""

    def __init__(self, device: Device, depth: int) -> None:
        file = device.kernel_file()
        if file is None:
            raise ValueError(f"{device.facts.name} has no file that io_uring could transfer")
        self.name = device.facts.name
        self.file = file
        self.depth = depth
        self.waiting: deque[IoRequest] = deque()
        self.running = 0


@dataclass(slots=True)
class _Transfer:
    """A request in the ring.

    The kernel runs one part at a time: ``part_bytes`` through the iovecs in ``vector``,
    to or from ``offset``. ``parts`` are those that are left.
    """

    queue: _Queue
    request: IoRequest
    parts: deque[list[memoryview]] = field(default_factory=deque)
    offset: int = 0
    byte_count: int = 0
    part_bytes: int = 0
    vector: ctypes.Array[ctypes.c_uint64] | None = None
    error: DeviceError | None = None


class _Server:
    """One ring and the thread that takes its completions, for one or more devices."""

    def __init__(self, number: int, *, entries: int) -> None:
        self._ring = Ring(entries)
        self._lock = Lock()
        self._running: dict[int, _Transfer] = {}
        self._last_token = _STOP
        self._is_closing = False
        self._thread = Thread(target=self._serve, name=f"io-{number}", daemon=True)
        self._thread.start()

    def submit(self, queue: _Queue, request: IoRequest) -> None:
        with self._lock:
            if self._is_closing:
                raise RuntimeError("the I/O engine is closed and takes no more requests")
            queue.waiting.append(request)
            self._start_waiting(queue)

    def close(self) -> None:
        with self._lock:
            if self._is_closing:
                return
            self._is_closing = True
            if not self._running:
                self._enter("the engine", Opcode.NOP, token=_STOP)
        self._thread.join()
        self._ring.close()

    def _start_waiting(self, queue: _Queue) -> None:
        """Brings requests into the ring while there is room; called under the lock."""
        while queue.waiting and queue.running < queue.depth:
            transfer = self._admitted(queue, queue.waiting.popleft())
            self._last_token += 1
            self._running[self._last_token] = transfer
            queue.running += 1
            try:
                self._start_part(self._last_token, transfer)
            except BaseException:
                # It never began: its place is free.
                del self._running[self._last_token]
                queue.running -= 1
                raise

    def _admitted(self, queue: _Queue, request: IoRequest) -> _Transfer:
        """A request with its parts, or with the error for which there are none."""
        transfer = _Transfer(queue, request, offset=request.offset)
        try:
            transfer.byte_count = queue.file.admit(
                request.operation.value, request.buffers, request.offset
            )
            transfer.parts.extend(batches(request.buffers))
        except DeviceError as error:
            transfer.error = error.without_frames()
        return transfer

    def _start_part(self, token: int, transfer: _Transfer) -> None:
        """Starts the next part; a transfer without one only completes."""
        name = transfer.queue.name
        if not transfer.parts:
            self._enter(name, Opcode.NOP, token=token)
            return
        part = transfer.parts.popleft()
        vector = (ctypes.c_uint64 * (2 * len(part)))()
        for place, buffer in enumerate(part):
            vector[2 * place] = _address(buffer)
            vector[2 * place + 1] = buffer.nbytes
        transfer.vector = vector
        transfer.part_bytes = sum(vector[1::2])
        self._enter(
            name,
            _OPCODES[transfer.request.operation],
            token=token,
            descriptor=transfer.queue.file.descriptor,
            vector=ctypes.addressof(vector),
            vector_count=len(part),
            offset=transfer.offset,
        )

    def _enter(self, name: str, opcode: Opcode, **entry: int) -> None:
        """Hands an entry to the kernel, which refuses only while it lacks memory."""
        is_refused = False
        while True:
            try:
                self._ring.submit(opcode, **entry)
            except OSError as error:
                if not is_refused:
                    _log.warning("%s: io_uring takes no transfer: %s", name, error.strerror)
                is_refused = True
                time.sleep(_RETRY_INTERVAL_S)
            else:
                return

    def _serve(self) -> None:
        is_over = False
        while not is_over:
            for completion in self._ring.wait():
                is_over = self._end_part(completion)

    def _end_part(self, completion: Completion) -> bool:
        """Goes on with a transfer, or reports it; True when it was the last one of all.

        A function of its own so that no request, and with it no view of an arena,
        outlives its service while the thread waits for the next one.
        """
        if completion.token == _STOP:
            return True
        with self._lock:
            transfer = self._running[completion.token]
            self._account(transfer, completion.result)
            if transfer.parts:
                self._start_part(completion.token, transfer)
                return False
            del self._running[completion.token]
            transfer.queue.running -= 1
            self._start_waiting(transfer.queue)
        self._report(transfer)
        with self._lock:
            return self._is_closing and not self._running

    def _account(self, transfer: _Transfer, result: int) -> None:
        """Takes the result of a part; a failed one is the last."""
        if result == transfer.part_bytes or transfer.error is not None:
            transfer.offset += transfer.part_bytes
            return
        cause = f"{result} of {transfer.part_bytes} bytes at offset {transfer.offset}"
        if result < 0:
            cause = os.strerror(-result)
        transfer.error = DeviceError(transfer.queue.name, transfer.request.operation.value, cause)
        transfer.parts.clear()

    def _report(self, transfer: _Transfer) -> None:
        request = transfer.request
        try:
            transfer.queue.file.settled(
                request.operation.value, transfer.byte_count, transfer.error
            )
            request.done(transfer.error)
        except Exception:
            _log.exception(
                "%s: the completion of a %s raised", transfer.queue.name, request.operation.value
            )


def _address(buffer: memoryview) -> int:
    if buffer.readonly or not buffer.nbytes:
        return int(np.frombuffer(buffer, np.uint8).ctypes.data)
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
