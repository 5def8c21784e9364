"""Extents wait for the header of their slab, whatever becomes of its write."""

from threading import Thread
from types import SimpleNamespace
from typing import cast

import pytest

from kvstored.counters import Counters
from kvstored.format.geometry import Extent
from kvstored.format.slab_header import SlabHeader
from kvstored.io.device import DeviceError, NotBegunError
from kvstored.io.engine import IoRequest
from kvstored.store.space.device_set import DeviceSet
from kvstored.store.start.recover import allocator_of
from kvstored.store.write import extents as extents_module
from kvstored.store.write.device_failures import WRITE_ERRORS_MAX, DeviceFailures
from kvstored.store.write.extents import Extents, SlabOpenings
from kvstored_contract.reasons import Reason
from tests.kvstored.store.index_stores import CLASS_BYTES, SLAB_COUNT, extent_at, memory_device_set
from tests.support.stores import MIB
from tests.support.waiting import PATIENCE_S, wait_until

SLAB = (0, 3)
AT_ONCE = 0.0
"""A deadline that is over."""


class HeldEngine:
    """Keeps what it is asked for, and takes nothing while it has ``refusals``."""

    def __init__(self) -> None:
        self.requests: list[IoRequest] = []
        self.refusals: list[Exception] = []

    def submit(self, request: IoRequest) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.requests.append(request)

    def close(self) -> None:
        pass


class WritingEngine(HeldEngine):
    """Ends each write at once."""

    def submit(self, request: IoRequest) -> None:
        super().submit(request)
        request.done(None)


class Bench:
    """Extents of one device over an engine that the test drives."""

    def __init__(self, engine: HeldEngine) -> None:
        self.engine = engine
        self.device_set = memory_device_set(1)
        self.failures = DeviceFailures(counters=Counters(), on_lost=lambda: None)
        self.extents = Extents(
            allocator=allocator_of(self.device_set),
            openings=SlabOpenings(engine=engine, device_set=self.device_set),
            failures=self.failures,
        )

    def allocate(self, class_bytes: int = CLASS_BYTES) -> Extent | Reason:
        return self.extents.allocate(class_bytes, 0, deadline=AT_ONCE)

    def written_header(self, number: int = -1) -> SlabHeader:
        return SlabHeader.decode(bytes(self.engine.requests[number].buffers[0]))

    def slab_of(self, number: int) -> int:
        """The slab whose header was written as this one."""
        return self.written_header(number).slab_index


@pytest.fixture
def writing() -> Bench:
    return Bench(WritingEngine())


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(extents_module, "OPENING_WAIT_S", 0.001)
    return Bench(HeldEngine())


def test_a_slab_that_was_begun_anew_lost_its_opening() -> None:
    """Bug: who heard of the old one's end could begin the slab before the old one was forgotten."""
    engine = HeldEngine()
    device_set = cast("DeviceSet", SimpleNamespace(device_ids=[bytes(16)], epoch=1))
    openings = SlabOpenings(engine=engine, device_set=device_set)
    first = openings.begin(SLAB)
    openings.write(SLAB, 4096, MIB)
    assert openings.find(SLAB) is first
    again = []
    first.add_done_callback(lambda _: again.append(openings.begin(SLAB)))
    engine.requests[0].done(None)
    assert first.result(0) is None
    assert openings.find(SLAB) is again[0]


@pytest.mark.parametrize("error", [MemoryError(), OSError(12, "Cannot allocate memory")], ids=repr)
def test_a_slab_whose_header_could_not_be_submitted_stayed_shut(
    writing: Bench, error: Exception
) -> None:
    """Bug: every later put of the class waited for that write until its deadline."""
    writing.engine.refusals.append(error)
    assert writing.allocate() is Reason.INTERNAL
    assert writing.extents.used_bytes(0) == 0
    assert writing.failures.devices == frozenset()
    assert writing.allocate(2 * CLASS_BYTES) == extent_at(0, size=2 * CLASS_BYTES)
    header = writing.written_header()
    assert (header.slab_index, header.class_bytes) == (0, 2 * CLASS_BYTES)


def test_a_slab_for_whose_header_there_was_no_memory_stayed_shut(
    writing: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patched:
        patched.setattr(extents_module, "AlignedMemory", fail)
        assert writing.allocate() is Reason.INTERNAL
    assert writing.allocate() == extent_at(0)
    assert writing.slab_of(-1) == 0


def test_an_engine_that_never_takes_a_header_ends_each_put(writing: Bench) -> None:
    writing.engine.refusals += [MemoryError()] * SLAB_COUNT
    assert [writing.allocate() for _ in range(SLAB_COUNT)] == [Reason.INTERNAL] * SLAB_COUNT
    assert writing.extents.used_bytes(0) == 0


def test_no_chunk_gets_into_a_slab_without_a_header(held: Bench) -> None:
    """It could become durable, and no rebuild would find it."""
    assert held.allocate() is Reason.DEADLINE
    opening = held.extents._openings.find((0, 0))
    assert opening is not None
    meanwhile: list[Extent | Reason] = []
    # Between the two that waited: one has given its extent back, the other has not.
    opening.add_done_callback(lambda _: meanwhile.append(held.allocate()))
    assert held.allocate() is Reason.DEADLINE
    assert len(held.engine.requests) == 1
    held.engine.requests[0].done(NotBegunError("device", "write", "no memory"))
    assert meanwhile == [Reason.DEADLINE]
    assert held.slab_of(1) == 1
    held.engine.requests[1].done(None)
    assert held.extents.used_bytes(0) == 0
    assert held.allocate() is Reason.DEADLINE
    assert held.slab_of(2) == 0


def test_those_who_waited_for_a_header_that_never_began_try_again(held: Bench) -> None:
    taken: list[Extent | Reason] = []
    threads = [
        Thread(target=lambda: taken.append(held.extents.allocate(CLASS_BYTES, 0))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: bool(held.engine.requests))
    wait_until(lambda: held.extents.used_bytes(0) == 3 * CLASS_BYTES)
    held.engine.requests[0].done(NotBegunError("device", "write", "no memory"))
    wait_until(lambda: len(held.engine.requests) == 2)
    held.engine.requests[1].done(None)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert held.slab_of(1) in (0, 1)
    assert taken.count(Reason.INTERNAL) == 1
    assert len({extent for extent in taken if isinstance(extent, Extent)}) == 2


def test_a_header_that_the_device_failed_to_write_ends_the_device(held: Bench) -> None:
    assert held.allocate() is Reason.DEADLINE
    held.engine.requests[0].done(DeviceError("device", "write", "Input/output error"))
    assert held.failures.devices == {0}
    assert held.allocate() is Reason.STORE_FULL


def test_writes_that_never_began_are_no_failures_of_the_device() -> None:
    failures = DeviceFailures(counters=Counters(), on_lost=lambda: None)
    for _ in range(WRITE_ERRORS_MAX):
        failures.write_failed(0, NotBegunError("device", "write", "no memory"))
    assert failures.devices == frozenset()
