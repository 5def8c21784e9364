"""The store in memory as tests of the runner set it."""

import math
import threading
from collections.abc import Callable

from google.protobuf.message import Message

from engine_adapters.reading.span_reader import THREAD_NAME as READER
from kvstored_client.testing import Delivery, Faults, MemoryStore, StoredChunk, Wait
from kvstored_protos.v1.store_pb2 import MatchRequest


class Clock:
    """Gives ``now_s``, which stands still unless a test moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def advance(self, duration_s: float) -> None:
        self.now_s += duration_s


def let_waits_take_time(store: MemoryStore, clock: Clock, *, least_s: float = 0.0) -> None:
    """From here on waits of this thread for a store take time of a clock, and bring nothing.

    Each takes ``least_s`` at least, also one whose time is up before it begins.
    """
    waiting = threading.current_thread()

    def take_time(wait: Wait) -> bool:
        if threading.current_thread() is not waiting:
            return False
        timeout_s = wait.timeout_s
        if timeout_s is not None and (timeout_s or least_s):
            # A wait that is too short for the clock to tell still takes time, as it really does.
            clock.advance(max(timeout_s, least_s, math.ulp(clock.now_s)))
        return True

    store.faults.on_wait = take_time


def make_store(chunks: dict[bytes, StoredChunk] | None = None) -> MemoryStore:
    """Serves as from devices. Its clock stands still: no read is late, and no lease expires."""
    return MemoryStore(chunks=chunks, faults=Faults(from_devices=True), clock=Clock())


def at(kind: type[Message], action: Callable[[], object]) -> Callable[[Message], None]:
    """For ``Faults.before`` and ``Faults.after``: acts at each request of one kind."""

    def act(request: Message) -> None:
        if isinstance(request, kind):
            action()

    return act


def bring_layers_on_wait(store: MemoryStore, action: Callable[[], object]) -> None:
    """Layers come when the engine waits for one of their slices, and ``action`` follows each.

    A look, which waits no time, brings none.
    """
    lock = threading.Lock()

    def bring(wait: Wait) -> bool:
        if wait.layer is None or threading.current_thread().name == READER:
            return False
        if wait.timeout_s is not None and wait.timeout_s <= 0:
            return True
        # A decoder waits beside the engine: nobody goes on before ``action`` is over.
        with lock:
            if wait.read.deliver(layer=wait.layer):
                action()
        return True

    store.faults.delivery = Delivery.HELD
    store.faults.on_wait = bring


def check_released(store: MemoryStore) -> None:
    """Nobody holds regions, reads or leases any more; nothing was read without a lease.

    And the pointers of each read only grew, up to its last chunk.
    """
    assert store.regions_in_use == store.boards_in_use == store.leases_in_use == 0
    assert all(match.lease_ms for match in store.asked(MatchRequest))
    for read in store.reads:
        assert read.pointers == sorted(read.pointers)
        assert max(read.pointers, default=0) <= len(read.keys)
