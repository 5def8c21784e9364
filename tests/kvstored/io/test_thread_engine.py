import logging
from collections.abc import Sequence
from threading import Barrier, Event, Lock

import pytest

from kvstored.io.device import Device, DeviceError
from kvstored.io.engine import IoRequest, Operation
from kvstored.io.faulty import CallFault, DeviceCall, FaultPlan, FaultyDevice
from kvstored.io.memory import AlignedMemory
from kvstored.io.memory_device import MemoryDevice
from kvstored.io.thread_engine import ThreadEngine
from tests.kvstored.io.buffers import PAGE_BYTES, aligned
from tests.kvstored.io.engine_conformance import (
    EngineConformance,
    Make,
    memory_devices,
    running,
    submit,
)


class TestConformanceOfOneThread(EngineConformance):
    @pytest.fixture
    def make(self) -> Make:
        return lambda devices: ThreadEngine(devices, depth=1)


class TestConformanceOfManyThreads(EngineConformance):
    @pytest.fixture
    def make(self) -> Make:
        return lambda devices: ThreadEngine(devices, depth=8)


class MeetingDevice(MemoryDevice):
    """Every read waits until ``party`` reads are running; tells the most that ever were."""

    def __init__(self, party: int) -> None:
        super().__init__("meeting", PAGE_BYTES)
        self._barrier = Barrier(party, timeout=30)
        self._lock = Lock()
        self._running = 0
        self.running_max = 0

    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        with self._lock:
            self._running += 1
            self.running_max = max(self.running_max, self._running)
        self._barrier.wait()
        with self._lock:
            self._running -= 1


class BrokenDevice(MemoryDevice):
    def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
        raise ZeroDivisionError("a bug")


def two_threads(devices: list[Device]) -> ThreadEngine:
    return ThreadEngine(devices, depth=2)


def test_runs_exactly_depth_requests_at_a_time() -> None:
    device = MeetingDevice(2)
    with running(two_threads, device) as engine:
        done = [submit(engine, Operation.READ, aligned(PAGE_BYTES)) for _ in range(20)]
        assert [completion.result(30) for completion in done] == [None] * 20
    assert device.running_max == 2


def test_one_thread_serves_in_order() -> None:
    order: list[int] = []
    last = Event()

    def request(index: int) -> IoRequest:
        def done(_: DeviceError | None) -> None:
            order.append(index)
            if index == 99:
                last.set()

        return IoRequest(
            device_index=0,
            operation=Operation.READ,
            buffers=(aligned(PAGE_BYTES),),
            offset=0,
            done=done,
        )

    engine = ThreadEngine(memory_devices(1), depth=1)
    for index in range(100):
        engine.submit(request(index))
    assert last.wait(30)
    engine.close()
    assert order == list(range(100))


def test_any_exception_of_a_device_is_reported() -> None:
    with running(two_threads, BrokenDevice("broken", PAGE_BYTES)) as engine:
        error = submit(engine, Operation.READ, aligned(PAGE_BYTES)).result(30)
        assert isinstance(error, DeviceError)
        assert "broken: read failed" in str(error)
        assert "a bug" in str(error)


def test_a_completion_that_raises_is_logged_and_ends_no_thread(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def raise_always(_: DeviceError | None) -> None:
        raise ZeroDivisionError

    request = IoRequest(
        device_index=0,
        operation=Operation.WRITE,
        buffers=(aligned(PAGE_BYTES),),
        offset=0,
        done=raise_always,
    )
    with (
        caplog.at_level(logging.ERROR),
        running(lambda devices: ThreadEngine(devices, depth=1), *memory_devices(1)) as engine,
    ):
        engine.submit(request)
        assert submit(engine, Operation.READ, aligned(PAGE_BYTES)).result(30) is None
    assert "the completion of a write raised" in caplog.text


@pytest.mark.parametrize("fails", [False, True])
def test_an_idle_thread_holds_no_buffer(fails: bool) -> None:
    """The owner of an arena can unmap it although the thread and the error live on."""
    faults = (CallFault(call=DeviceCall.READ, nth=1),) if fails else ()
    device = FaultyDevice(memory_devices(1)[0], FaultPlan(faults=faults))
    arena = AlignedMemory(PAGE_BYTES)
    with running(lambda devices: ThreadEngine(devices, depth=1), device) as engine:
        error = submit(engine, Operation.READ, arena.view).result(30)
        # Its completion shows that the thread is done with the request before it.
        assert submit(engine, Operation.READ, aligned(PAGE_BYTES)).result(30) is None
        arena.close()
    assert (error is not None) == fails


def test_refuses_a_depth_of_zero() -> None:
    with pytest.raises(ValueError, match="depth must be at least 1, not 0"):
        ThreadEngine(memory_devices(1), depth=0)


def test_an_engine_without_devices_closes() -> None:
    ThreadEngine([], depth=1).close()
