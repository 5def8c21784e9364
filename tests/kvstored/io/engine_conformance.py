"""What every implementation of ``IoEngine`` must do. Subclasses say how one is made."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from weakref import WeakKeyDictionary

import pytest

from kvstored.io.device import Device, DeviceError
from kvstored.io.engine import IoEngine, IoRequest, Operation
from kvstored.io.faulty import CallFault, DeviceCall, FaultPlan, FaultyDevice
from kvstored.io.memory_device import MemoryDevice
from tests.kvstored.io.buffers import PAGE_BYTES, aligned
from tests.support.waiting import SOON_S

DEVICE_PAGES = 64

Make = Callable[[list[Device]], IoEngine]


class Report(Future[DeviceError | None]):
    """What became of a request, and how often the engine said so."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def take(self, outcome: DeviceError | None) -> None:
        """Is the request's ``done``; what that raises an engine only logs, so it counts."""
        self.count += 1
        if self.count == 1:
            self.set_result(outcome)


_REPORTS: WeakKeyDictionary[IoEngine, list[Report]] = WeakKeyDictionary()
"""Of all requests that an engine took by ``submit``."""


def check_reported_once(engine: IoEngine) -> None:
    """Of an engine that was closed."""
    assert {report.count for report in _REPORTS.get(engine, [])} <= {1}


@contextmanager
def running(make: Make, *devices: Device) -> Iterator[IoEngine]:
    """An engine over ``devices`` that is closed at the end; it has reported each request once."""
    engine = make(list(devices))
    try:
        yield engine
    finally:
        engine.close()
    check_reported_once(engine)


def closes(engine: IoEngine) -> bool:
    """Whether an engine comes to its end, where one that has lost a request would not."""
    closer = Thread(target=engine.close, daemon=True)
    closer.start()
    closer.join(SOON_S)
    return not closer.is_alive()


def memory_devices(count: int) -> list[MemoryDevice]:
    return [MemoryDevice(f"memory-{index}", DEVICE_PAGES * PAGE_BYTES) for index in range(count)]


def submit(
    engine: IoEngine,
    operation: Operation,
    buffer: memoryview,
    *,
    device_index: int = 0,
    page: int = 0,
) -> Future[DeviceError | None]:
    """Submits one request."""
    report = Report()
    engine.submit(
        IoRequest(
            device_index=device_index,
            operation=operation,
            buffers=(buffer,),
            offset=page * PAGE_BYTES,
            done=report.take,
        )
    )
    _REPORTS.setdefault(engine, []).append(report)
    return report


class EngineConformance:
    """``make`` is a fixture that builds an engine over the devices given to it."""

    def test_transfers_on_the_device_that_is_named(self, make: Make) -> None:
        devices = memory_devices(2)
        with running(make, *devices) as engine:
            written = aligned(PAGE_BYTES, seed=1)
            read = aligned(PAGE_BYTES)
            done = submit(engine, Operation.WRITE, written, device_index=1, page=3)
            assert done.result(30) is None
            done = submit(engine, Operation.READ, read, device_index=1, page=3)
            assert done.result(30) is None
        assert read == written
        assert not devices[0].media.any()

    def test_completes_each_of_many_requests(self, make: Make) -> None:
        pages = [aligned(PAGE_BYTES, seed=page) for page in range(DEVICE_PAGES)]
        with running(make, *memory_devices(2)) as engine:
            for device_index in range(2):
                writes = [
                    submit(engine, Operation.WRITE, data, device_index=device_index, page=page)
                    for page, data in enumerate(pages)
                ]
                assert [done.result(30) for done in writes] == [None] * DEVICE_PAGES
                buffers = [aligned(PAGE_BYTES) for _ in pages]
                reads = [
                    submit(engine, Operation.READ, buffer, device_index=device_index, page=page)
                    for page, buffer in enumerate(buffers)
                ]
                assert [done.result(30) for done in reads] == [None] * DEVICE_PAGES
                assert buffers == pages

    def test_reports_a_device_error_and_goes_on(self, make: Make) -> None:
        plan = FaultPlan(faults=(CallFault(call=DeviceCall.READ, nth=1),))
        with running(make, FaultyDevice(memory_devices(1)[0], plan)) as engine:
            error = submit(engine, Operation.READ, aligned(PAGE_BYTES)).result(30)
            assert isinstance(error, DeviceError)
            assert "planned fault" in str(error)
            assert submit(engine, Operation.READ, aligned(PAGE_BYTES)).result(30) is None

    def test_close_completes_what_was_submitted(self, make: Make) -> None:
        (device,) = memory_devices(1)
        engine = make([device])
        pages = [aligned(PAGE_BYTES, seed=page) for page in range(50)]
        reports = [
            submit(engine, Operation.WRITE, data, page=page) for page, data in enumerate(pages)
        ]
        engine.close()
        assert [report.result(0) for report in reports] == [None] * 50
        check_reported_once(engine)
        assert bytes(device.media[: 50 * PAGE_BYTES]) == b"".join(pages)

    def test_refuses_requests_once_closed(self, make: Make) -> None:
        engine = make([*memory_devices(1)])
        engine.close()
        engine.close()
        with pytest.raises(RuntimeError, match="closed"):
            submit(engine, Operation.READ, aligned(PAGE_BYTES))

    def test_refuses_unknown_devices(self, make: Make) -> None:
        with running(make, *memory_devices(1)) as engine, pytest.raises(IndexError):
            submit(engine, Operation.READ, aligned(PAGE_BYTES), device_index=1)
