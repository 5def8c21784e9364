"""Leases of entries that requests name, taken and given back on a thread of their own."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from kvstored_client import Lease

LOGGER = logging.getLogger(__name__)

THREAD_NAME = "entry-leases"

CLOSE_S = 1.0
"""How long after ``close`` calls are begun that give leases back; the others end with the
session."""

Pin = Callable[[], Lease | None]


class EntryHold:
    """What one request has asked for; its lease comes later, or never."""

    def __init__(self, pin: Pin) -> None:
        self.pin = pin
        self.lease: Lease | None = None
        self.is_wanted = True


class EntryLeases:
    """Keeps entries from eviction while requests need them, and never makes these wait.

    One thread makes all calls, in their order, so that a store which hangs costs leases and no
    time: what is evicted for want of one is computed. A request that is over before its call was
    begun makes none. ``hold`` and ``let_go`` return at once; thread-safe.
    """

    def __init__(self) -> None:
        self._orders: deque[EntryHold] = deque()
        self._holds: set[EntryHold] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed_s: float | None = None

    def hold(self, pin: Pin) -> EntryHold:
        """Has the thread call ``pin``; what that gives is kept until ``let_go``."""
        held = EntryHold(pin)
        with self._changed:
            self._order(held)
            self._holds.add(held)
        return held

    def let_go(self, held: EntryHold) -> None:
        """Has the thread give a lease back. A second call does nothing."""
        with self._changed:
            if not held.is_wanted:
                return
            held.is_wanted = False
            self._holds.discard(held)
            if held in self._orders:
                self._orders.remove(held)
            else:
                self._order(held)

    def close(self) -> None:
        """Lets everything go and waits for the thread, of which every call has a deadline."""
        for held in list(self._holds):
            self.let_go(held)
        with self._changed:
            self._closed_s = time.monotonic()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _order(self, held: EntryHold) -> None:
        """Called with the lock held."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
            # One that cannot be started is none, and has no order: the next one tries again.
            thread.start()
            self._thread = thread
        self._orders.append(held)
        self._changed.notify_all()

    def _run(self) -> None:
        while (held := self._next()) is not None:
            try:
                self._serve(held)
            except Exception:
                LOGGER.exception("entries could not be held; what is evicted of them is computed")

    def _next(self) -> EntryHold | None:
        """None when it is closed and nothing is left, or the time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self._orders or self._closed_s is not None)
            if self._closed_s is not None and time.monotonic() - self._closed_s > CLOSE_S:
                return None
            return self._orders.popleft() if self._orders else None

    def _serve(self, held: EntryHold) -> None:
        """Takes the lease of one that is wanted, or gives back that of one that is not."""
        if held.is_wanted:
            held.lease = held.pin()
            # One that was let go meanwhile has a second order.
            return
        lease, held.lease = held.lease, None
        if lease is not None:
            lease.release()
