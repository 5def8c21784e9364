from collections.abc import Iterator, Sequence
from dataclasses import replace
from threading import Event, Semaphore, Thread

import pytest

from kvstored.io.device import Device, DeviceError, NotBegunError
from kvstored.io.engine import Background, IoEngine, IoRequest, Operation
from kvstored.io.memory import AlignedMemory
from kvstored.io.memory_device import MemoryDevice
from kvstored.io.schedule import BURST_COST_BYTES, SILENCE_S, SchedulePolicy
from kvstored.io.scheduled_engine import ScheduledEngine
from kvstored.io.thread_engine import ThreadEngine
from tests.kvstored.io.buffers import PAGE_BYTES, aligned
from tests.kvstored.io.engine_conformance import (
    EngineConformance,
    Make,
    closes,
    memory_devices,
    running,
    submit,
)
from tests.kvstored.io.held_engine import HeldEngine
from tests.support.waiting import PATIENCE_S, wait_until

POLICY = SchedulePolicy(
    write_share=0.15,
    prefetch_share=1e-6,
    background_share=0.05,
    background_shares={Background.PROMOTION: 1e-6, Background.SCRUB: 0.05 - 2e-6},
    write_cost=1.5,
)
DEPTH = 4
READ, WRITE = Operation.READ, Operation.WRITE
LONG = memoryview(bytes(2 * BURST_COST_BYTES))
"""A buffer whose transfer takes all tokens of a class."""


def over_threads(devices: Sequence[Device], depth: int) -> ScheduledEngine:
    return ScheduledEngine(
        ThreadEngine(devices, depth=depth), device_count=len(devices), depth=depth, policy=POLICY
    )


class TestConformanceOverOneThread(EngineConformance):
    @pytest.fixture
    def make(self) -> Make:
        return lambda devices: over_threads(devices, 1)


class TestConformanceOverManyThreads(EngineConformance):
    @pytest.fixture
    def make(self) -> Make:
        return lambda devices: over_threads(devices, 8)


class Clock:
    """Stands still until it is set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Bench:
    """A scheduled engine for two devices over one that the test drives."""

    def __init__(self) -> None:
        self.inner = HeldEngine()
        self.clock = Clock()
        self.engine = ScheduledEngine(
            self.inner, device_count=2, depth=DEPTH, policy=POLICY, clock=self.clock
        )

    def submit(self, operation: Operation, count: int = 1, *, background: bool = False) -> None:
        for _ in range(count):
            self.engine.submit(
                IoRequest(
                    device_index=0,
                    operation=operation,
                    buffers=(LONG,),
                    offset=0,
                    done=lambda _: None,
                    background=Background.SCRUB if background else None,
                )
            )

    @property
    def operations(self) -> list[Operation]:
        return [request.operation for request in self.inner.held]

    def spend_tokens_of_writes(self) -> None:
        self.submit(WRITE)
        self.inner.end(-1)


@pytest.fixture
def bench() -> Iterator[Bench]:
    opened = Bench()
    yield opened
    closer = Thread(target=opened.engine.close)
    closer.start()
    while closer.is_alive():
        while opened.inner.held:
            opened.inner.end()
        opened.clock.now_s += SILENCE_S
        closer.join(0.01)
    assert opened.inner.is_closed


def test_a_request_that_is_alone_starts_on_the_thread_that_submits_it(bench: Bench) -> None:
    bench.submit(READ)
    assert bench.operations == [READ]


def test_the_inner_engine_never_has_more_than_its_depth(bench: Bench) -> None:
    bench.submit(READ, 3 * DEPTH)
    assert len(bench.inner.held) == DEPTH
    for _ in range(2 * DEPTH):
        bench.inner.end()
        assert len(bench.inner.held) == DEPTH


def test_a_request_reaches_the_inner_engine_as_it_is(bench: Bench) -> None:
    asked = IoRequest(
        device_index=1,
        operation=READ,
        buffers=(LONG[:PAGE_BYTES], LONG),
        offset=7 * PAGE_BYTES,
        done=lambda _: None,
        background=Background.SCRUB,
    )
    bench.engine.submit(asked)
    (got,) = bench.inner.held
    assert replace(got, done=asked.done) == asked


def test_devices_do_not_wait_for_each_other(bench: Bench) -> None:
    bench.submit(READ, DEPTH + 1)
    submit(bench.engine, READ, LONG, device_index=1)
    assert [request.device_index for request in bench.inner.held] == [0] * DEPTH + [1]


def test_reads_overtake_writes(bench: Bench) -> None:
    bench.submit(WRITE, 2 * DEPTH)
    bench.submit(READ, DEPTH)
    for _ in range(DEPTH - 1):
        bench.inner.end()
    assert bench.operations == [WRITE] + [READ] * (DEPTH - 1)


@pytest.mark.parametrize("background", [False, True])
def test_what_is_below_goes_on_when_reads_have_paid_for_it(bench: Bench, background: bool) -> None:
    operation = READ if background else WRITE
    bench.submit(READ)
    bench.submit(operation, background=background)
    bench.inner.end(-1)
    bench.submit(operation, background=background)
    started = 0
    for _ in range(40):
        bench.submit(READ)
        bench.inner.end()
        if len(bench.inner.held) > 1:
            started += 1
            bench.inner.end(-1)
            bench.submit(operation, background=background)
    # 40 reads of 8 MiB pay 60 MiB for writes, at 12 MiB each behind a debt of 8 MiB, and
    # 17 MiB for background, at 8 MiB each behind a debt of 4 MiB.
    assert started == (2 if background else 5)


def test_the_end_of_a_pause_starts_a_write_without_any_other_event(bench: Bench) -> None:
    bench.submit(READ)
    bench.spend_tokens_of_writes()
    bench.inner.end()
    for round_s in (1.0, 2.0):
        bench.clock.now_s = round_s
        bench.submit(READ)
        bench.submit(WRITE)
        assert bench.operations == [READ]
        bench.clock.now_s = round_s + 0.001
        bench.inner.end()
        assert bench.operations == []
        bench.inner.started.clear()
        bench.clock.now_s = round_s + 0.01
        assert bench.inner.started.wait(PATIENCE_S)
        assert bench.operations == [WRITE]
        bench.inner.end()


def test_an_error_reaches_the_one_who_asked(bench: Bench) -> None:
    error = DeviceError("device", "read", "broken")
    done = submit(bench.engine, READ, LONG)
    bench.inner.end(error=error)
    assert done.result(0) is error


def test_close_waits_for_what_waits_and_for_what_runs() -> None:
    bench = Bench()
    bench.submit(READ, DEPTH + 1)
    closer = Thread(target=bench.engine.close)
    closer.start()
    assert not bench.inner.is_closed
    wait_until(lambda: refuses(bench))
    while bench.inner.held:
        assert not bench.inner.is_closed
        bench.inner.end()
    closer.join(PATIENCE_S)
    assert bench.inner.is_closed


def refuses(bench: Bench) -> bool:
    try:
        bench.submit(READ)
    except RuntimeError as error:
        return "closed" in str(error)
    return False


class SlowWriteDevice(MemoryDevice):
    """Each write waits until it is let go; reads do not wait."""

    def __init__(self) -> None:
        super().__init__("slow", 64 * PAGE_BYTES)
        self.started = Semaphore(0)
        self.let_go = Semaphore(0)

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        self.started.release()
        assert self.let_go.acquire(timeout=PATIENCE_S)
        super().writev(buffers, offset)


def test_a_read_needs_the_end_of_one_write_only() -> None:
    device = SlowWriteDevice()
    with running(lambda devices: over_threads(devices, 2), device) as engine:
        completions = [submit(engine, WRITE, aligned(PAGE_BYTES)) for _ in range(20)]
        for _ in range(2):
            assert device.started.acquire(timeout=PATIENCE_S)
        read = submit(engine, READ, aligned(PAGE_BYTES))
        device.let_go.release()
        assert read.result(PATIENCE_S) is None
        assert sum(done.done() for done in completions) == 1
        device.let_go.release(19)
        assert [done.result(PATIENCE_S) for done in completions] == [None] * 20


def test_reads_that_hang_do_not_hold_up_writes() -> None:
    class HangingDevice(MemoryDevice):
        gate = Event()

        def readv(self, buffers: Sequence[memoryview], offset: int) -> None:
            assert self.gate.wait(PATIENCE_S)

    device = HangingDevice("hanging", 4 * BURST_COST_BYTES)
    with running(lambda devices: over_threads(devices, 2), device) as engine:
        read = submit(engine, READ, aligned(PAGE_BYTES))
        writes = [submit(engine, WRITE, aligned(len(LONG))) for _ in range(3)]
        assert [done.result(PATIENCE_S) for done in writes] == [None] * 3
        device.gate.set()
        assert read.result(PATIENCE_S) is None


def test_an_idle_engine_holds_no_buffer() -> None:
    """The owner of an arena can unmap it although the engine lives on."""
    arena = AlignedMemory(PAGE_BYTES)

    def make(devices: Sequence[Device]) -> IoEngine:
        return over_threads(devices, 1)

    with running(make, *memory_devices(1)) as engine:
        for operation in (READ, WRITE, READ):
            assert submit(engine, operation, arena.view).result(PATIENCE_S) is None
        # Its completion shows that the thread is done with the request before it.
        assert submit(engine, READ, aligned(PAGE_BYTES)).result(PATIENCE_S) is None
        arena.close()


class RefusingEngine(ThreadEngine):
    """Takes no request while it has ``refusals``."""

    def __init__(self, devices: Sequence[Device]) -> None:
        super().__init__(devices, depth=1)
        self.refusals: list[Exception] = []

    def submit(self, request: IoRequest) -> None:
        if self.refusals:
            raise self.refusals.pop()
        super().submit(request)


def test_a_request_that_was_not_taken_kept_others_from_their_end() -> None:
    """Bug: one more never started, those after it neither, and the engine never closed."""
    device = SlowWriteDevice()
    inner = RefusingEngine([device])
    engine = ScheduledEngine(inner, device_count=1, depth=1, policy=POLICY)
    first = submit(engine, WRITE, aligned(PAGE_BYTES))
    assert device.started.acquire(timeout=PATIENCE_S)
    second, third = (submit(engine, WRITE, aligned(PAGE_BYTES)) for _ in range(2))
    inner.refusals.append(MemoryError())
    device.let_go.release(2)
    assert closes(engine)
    assert [first.result(0), third.result(0)] == [None, None]
    error = second.result(0)
    assert isinstance(error, NotBegunError)
    assert str(error) == "device 0: write failed: MemoryError()"


def test_what_was_not_taken_is_reported_before_the_engine_has_closed() -> None:
    inner = RefusingEngine(memory_devices(1))
    engine = ScheduledEngine(inner, device_count=1, depth=1, policy=POLICY)
    inner.refusals += [MemoryError()] * 2
    ends = [submit(engine, READ, aligned(PAGE_BYTES)) for _ in range(2)]
    assert closes(engine)
    assert all(isinstance(end.result(0), NotBegunError) for end in ends)
