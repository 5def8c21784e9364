"""An I/O engine that starts requests in the order that the schedule of each device decides."""

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Event, Lock, Thread

from kvstored.io.device import DeviceError, NotBegunError
from kvstored.io.engine import IoEngine, IoRequest
from kvstored.io.schedule import Grant, Schedule, SchedulePolicy

LOGGER = logging.getLogger(__name__)

_Grant = Grant[IoRequest]


class ScheduledEngine:
    """Implements ``IoEngine`` around ``inner``, which it closes.

    ``inner`` runs ``depth`` requests of each of ``device_count`` devices at a time and
    never gets more, so that nothing waits there: what waits, waits here, by class. A
    request starts on the thread that submits it or on the one that reports the end of
    another. A thread of its own ends the pauses in which a device is kept free, and reports what
    ``inner`` did not take, as NotBegunError.
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
        self._not_begun: deque[tuple[IoRequest, NotBegunError]] = deque()
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
        """Hands requests to the inner engine; without the lock, because it may block.

        They are others' as well: one that is not taken is over, and those after it start. The
        thread that ends pauses reports it, because who submits may be about to wait for it.
        """
        waiting = deque(grants)
        while waiting:
            grant = waiting.popleft()
            request = grant.item
            try:
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
            except Exception as error:
                name = f"device {request.device_index}"
                cause = NotBegunError(name, request.operation.value, repr(error))
                # Before the engine may count as idle: then that thread ends.
                self._not_begun.append((request, cause))
                waiting.extend(self._take_after(grant)[0])
                is_early = True
        if is_early:
            self._look.set()

    def _take_after(self, grant: _Grant) -> tuple[list[_Grant], bool]:
        """Takes back a grant; as ``_Queue.take`` then."""
        queue = self._queues[grant.item.device_index]
        with queue.lock:
            now_s = self._clock()
            queue.schedule.ended(grant, now_s)
            grants, is_early = queue.take(now_s)
            if queue.is_closing and queue.schedule.is_idle:
                queue.drained.set()
        return grants, is_early

    def _ended(self, grant: _Grant, error: DeviceError | None) -> None:
        self._start(*self._take_after(grant))
        grant.item.done(error)

    def _end_pauses(self) -> None:
        wait_s: float | None = None
        while not self._is_closed:
            self._look.wait(wait_s)
            self._look.clear()
            self._report_not_begun()
            wait_s = self._end_pause()
        self._report_not_begun()

    def _report_not_begun(self) -> None:
        """A function of its own for the same reason as ``_end_pause``."""
        while self._not_begun:
            request, error = self._not_begun.popleft()
            try:
                request.done(error)
            except Exception:
                LOGGER.exception("the completion of a %s raised", request.operation.value)

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
