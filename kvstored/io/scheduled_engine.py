"""An I/O engine that starts requests in the order that the schedule of each device decides."""

import time
from collections.abc import Callable
from functools import partial
from threading import Event, Lock, Thread

from kvstored.io.device import DeviceError
from kvstored.io.engine import IoEngine, IoRequest
from kvstored.io.schedule import Grant, Schedule, SchedulePolicy

_Grant = Grant[IoRequest]


class ScheduledEngine:
    """Implements ``IoEngine`` around ``inner``, which it closes.

    ``inner`` runs ``depth`` requests of each of ``device_count`` devices at a time and
    never gets more, so that nothing waits there: what waits, waits here, by class. A
    request starts on the thread that submits it or on the one that reports the end of
    another; a thread of its own only ends the pauses in which a device is kept free.
    """

    def __init__(
        self,
        inner: IoEngine,
        *,
        device_count: int,
        depth: int,
        policy: SchedulePolicy,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._policy = policy
        self._clock = clock
        self._look = Event()
        self._queues = [_Queue(policy, depth) for _ in range(device_count)]
        self._is_closed = False
        self._thread = Thread(target=self._end_pauses, name="io-pauses", daemon=True)
        self._thread.start()

    def submit(self, request: IoRequest) -> None:
        """Queues ``request``; raises IndexError for an unknown device, RuntimeError once closed."""
        queue = self._queues[request.device_index]
        byte_count = sum([buffer.nbytes for buffer in request.buffers])
        cost_bytes = self._policy.cost_bytes(request.operation, byte_count)
        with queue.lock:
            if queue.is_closing:
                raise RuntimeError("the I/O engine is closed and takes no more requests")
            now_s = self._clock()
            queue.schedule.add(request, traffic=request.traffic, cost_bytes=cost_bytes, now_s=now_s)
            grants, is_early = queue.take(now_s)
        self._start(grants, is_early)

    def close(self) -> None:
        """Runs what was submitted and closes ``inner``. Not to be called by ``done``."""
        for queue in self._queues:
            with queue.lock:
                queue.is_closing = True
                if queue.schedule.is_idle:
                    queue.drained.set()
        for queue in self._queues:
            queue.drained.wait()
        self._is_closed = True
        self._look.set()
        self._thread.join()
        self._inner.close()

    def _start(self, grants: list[_Grant], is_early: bool) -> None:
        """Hands requests to the inner engine; without the lock, because it may block."""
        for grant in grants:
            request = grant.item
            self._inner.submit(
                IoRequest(
                    device_index=request.device_index,
                    operation=request.operation,
                    buffers=request.buffers,
                    offset=request.offset,
                    done=partial(self._ended, grant),
                    background=request.background,
                    is_awaited=request.is_awaited,
                )
            )
        if is_early:
            self._look.set()

    def _ended(self, grant: _Grant, error: DeviceError | None) -> None:
        request = grant.item
        queue = self._queues[request.device_index]
        with queue.lock:
            now_s = self._clock()
            queue.schedule.ended(grant, now_s)
            grants, is_early = queue.take(now_s)
            if queue.is_closing and queue.schedule.is_idle:
                queue.drained.set()
        self._start(grants, is_early)
        request.done(error)

    def _end_pauses(self) -> None:
        wait_s: float | None = None
        while not self._is_closed:
            self._look.wait(wait_s)
            self._look.clear()
            wait_s = self._end_pause()

    def _end_pause(self) -> float | None:
        """Starts what may start now on any device; the seconds until the next look.

        A function of its own so that no request outlives its service in the thread.
        """
        waits_s: list[float] = []
        for queue in self._queues:
            with queue.lock:
                grants, wait_s = queue.look(self._clock())
            self._start(grants, is_early=False)
            if wait_s is not None:
                waits_s.append(wait_s)
        return min(waits_s, default=None)


class _Queue:
    """The schedule of one device. All but the events is used under ``lock``.

    ``look_at_s`` is when the thread that ends pauses looks next at this device; None
    while it need not.
    """

    def __init__(self, policy: SchedulePolicy, depth: int) -> None:
        self.lock = Lock()
        self.schedule: Schedule[IoRequest] = Schedule(policy, depth=depth)
        self.drained = Event()
        self.is_closing = False
        self.look_at_s: float | None = None

    def take(self, now_s: float) -> tuple[list[_Grant], bool]:
        """All requests that may start now, and whether the next look must be earlier."""
        grants = self._grants(now_s)
        retry_s = self.schedule.retry_s(now_s)
        if retry_s is None or (self.look_at_s is not None and self.look_at_s <= now_s + retry_s):
            return grants, False
        self.look_at_s = now_s + retry_s
        return grants, True

    def look(self, now_s: float) -> tuple[list[_Grant], float | None]:
        """The same for the thread that ends pauses: with the seconds until its next look."""
        grants = self._grants(now_s)
        retry_s = self.schedule.retry_s(now_s)
        self.look_at_s = None if retry_s is None else now_s + retry_s
        return grants, retry_s

    def _grants(self, now_s: float) -> list[_Grant]:
        grants = []
        while (grant := self.schedule.take(now_s)) is not None:
            grants.append(grant)
        return grants
