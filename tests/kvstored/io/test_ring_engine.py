"""The engine on io_uring, over files."""

import errno
import logging
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest

from kvstored.io import transfer
from kvstored.io.device import Device, DeviceError
from kvstored.io.engine import IoRequest, Operation
from kvstored.io.file_device import FileDevice
from kvstored.io.memory_device import MemoryDevice
from kvstored.io.monitored import MonitoredDevice
from kvstored.io.ring import Completion, Opcode, Ring
from kvstored.io.ring_engine import RingEngine, ring_threads
from tests.kvstored.io.buffers import PAGE_BYTES, aligned
from tests.kvstored.io.engine_conformance import (
    DEVICE_PAGES,
    check_reported_once,
    closes,
    running,
    submit,
)
from tests.support.waiting import wait_until

MakeFiles = Callable[[int], list[FileDevice]]


@pytest.fixture
def files(tmp_path: Path) -> Iterator[MakeFiles]:
    with ExitStack() as stack:

        def make(count: int) -> list[FileDevice]:
            devices = []
            for index in range(count):
                descriptor, name = tempfile.mkstemp(prefix=f"device{index}-", dir=tmp_path)
                os.write(descriptor, bytes(DEVICE_PAGES * PAGE_BYTES))
                os.close(descriptor)
                devices.append(FileDevice.open(name))
                stack.callback(devices[-1].close)
            return devices

        yield make


def ring_of(depth: int, thread_count: int | None = None) -> Callable[[list[Device]], RingEngine]:
    return lambda devices: RingEngine(devices, depth=depth, thread_count=thread_count)


@pytest.mark.parametrize(
    ("device_count", "core_count", "threads"),
    [(1, 16, 1), (2, 2, 1), (4, 16, 4), (8, 8, 4), (3, 1, 1)],
)
def test_threads_take_completions_on_half_of_the_cores_at_most(
    device_count: int, core_count: int, threads: int
) -> None:
    assert ring_threads(device_count, core_count) == threads


@pytest.mark.parametrize("thread_count", [None, 1, 2])
@pytest.mark.parametrize("depth", [1, 8])
def test_each_of_many_requests_completes_on_its_device(
    files: MakeFiles, depth: int, thread_count: int | None
) -> None:
    pages = [aligned(PAGE_BYTES, seed=page) for page in range(DEVICE_PAGES)]
    buffers = [aligned(PAGE_BYTES) for _ in pages]
    empty = [aligned(PAGE_BYTES) for _ in pages]
    with running(ring_of(depth, thread_count), *files(2)) as engine:
        writes = [
            submit(engine, Operation.WRITE, data, device_index=1, page=page)
            for page, data in enumerate(pages)
        ]
        assert [done.result(30) for done in writes] == [None] * DEVICE_PAGES
        for device_index, kept in ((1, buffers), (0, empty)):
            reads = [
                submit(engine, Operation.READ, buffer, device_index=device_index, page=page)
                for page, buffer in enumerate(kept)
            ]
            assert [done.result(30) for done in reads] == [None] * DEVICE_PAGES
    assert buffers == pages
    assert not any(map(any, empty))


def test_requests_of_more_parts_than_one_call_takes(
    files: MakeFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "IOV_MAX", 3)
    pages = tuple(aligned(PAGE_BYTES, seed=page) for page in range(10))
    back = tuple(aligned(PAGE_BYTES) for _ in pages)
    ends: list[DeviceError | None] = []
    with running(ring_of(2), *files(1)) as engine:
        for operation, buffers in ((Operation.WRITE, pages), (Operation.READ, back)):
            end = Event()

            def done(error: DeviceError | None, end: Event = end) -> None:
                ends.append(error)
                end.set()

            engine.submit(
                IoRequest(
                    device_index=0,
                    operation=operation,
                    buffers=buffers,
                    offset=PAGE_BYTES,
                    done=done,
                )
            )
            assert end.wait(30)
    assert ends == [None, None]
    assert back == pages


def test_an_empty_request_completes(files: MakeFiles) -> None:
    with running(ring_of(1), *files(1)) as engine:
        assert submit(engine, Operation.READ, memoryview(b"")).result(30) is None


def test_the_kernels_error_is_reported_and_the_engine_goes_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "device"
    path.write_bytes(bytes(PAGE_BYTES))
    device = FileDevice.open(path, readonly=True)
    monitored = MonitoredDevice(device)
    with running(ring_of(2), monitored) as engine:
        error = submit(engine, Operation.WRITE, aligned(PAGE_BYTES)).result(30)
        assert "write failed: Bad file descriptor" in str(error)
        assert submit(engine, Operation.READ, aligned(PAGE_BYTES)).result(30) is None
    counters = monitored.counters()
    assert (counters.write_requests, counters.written_bytes, counters.errors) == (1, 0, 1)
    assert (counters.read_requests, counters.read_bytes) == (1, PAGE_BYTES)
    device.close()


def test_a_transfer_outside_the_device_is_refused_before_the_kernel(files: MakeFiles) -> None:
    with running(ring_of(2), *files(1)) as engine:
        error = submit(engine, Operation.READ, aligned(PAGE_BYTES), page=DEVICE_PAGES).result(30)
        assert "lie outside" in str(error)


def test_a_short_transfer_is_an_error(files: MakeFiles) -> None:
    devices = files(1)
    with running(ring_of(2), *devices) as engine:
        os.truncate(devices[0].facts.name, PAGE_BYTES)
        error = submit(engine, Operation.READ, aligned(2 * PAGE_BYTES)).result(30)
        assert f"{PAGE_BYTES} of {2 * PAGE_BYTES} bytes at offset 0" in str(error)


def test_close_completes_what_was_submitted_and_refuses_more(files: MakeFiles) -> None:
    devices = files(1)
    engine = RingEngine(devices, depth=2)
    pages = [aligned(PAGE_BYTES, seed=page) for page in range(50)]
    reports = [submit(engine, Operation.WRITE, data, page=page) for page, data in enumerate(pages)]
    engine.close()
    assert [report.result(0) for report in reports] == [None] * 50
    check_reported_once(engine)
    assert Path(devices[0].facts.name).read_bytes()[: 50 * PAGE_BYTES] == b"".join(pages)
    engine.close()
    with pytest.raises(RuntimeError, match="closed"):
        submit(engine, Operation.READ, aligned(PAGE_BYTES))


def test_unknown_devices_and_depths_are_refused(files: MakeFiles) -> None:
    with pytest.raises(ValueError, match="depth must be at least 1, not 0"):
        RingEngine(files(1), depth=0)
    with running(ring_of(1), *files(1)) as engine, pytest.raises(IndexError):
        submit(engine, Operation.READ, aligned(PAGE_BYTES), device_index=1)


def test_devices_without_a_file_are_refused_and_nothing_is_left(files: MakeFiles) -> None:
    with pytest.raises(ValueError, match="memory has no file"):
        RingEngine([*files(1), MemoryDevice("memory", PAGE_BYTES)], depth=1)


def test_a_completion_that_raises_is_logged_and_ends_nothing(
    files: MakeFiles, caplog: pytest.LogCaptureFixture
) -> None:
    def raise_always(_: DeviceError | None) -> None:
        raise ZeroDivisionError

    with caplog.at_level(logging.ERROR), running(ring_of(1), *files(1)) as engine:
        engine.submit(
            IoRequest(
                device_index=0,
                operation=Operation.READ,
                buffers=(aligned(PAGE_BYTES),),
                offset=0,
                done=raise_always,
            )
        )
        assert submit(engine, Operation.READ, aligned(PAGE_BYTES)).result(30) is None
    assert "the completion of a read raised" in caplog.text


def test_no_memory_of_a_request_outlives_it(files: MakeFiles) -> None:
    """A thread that kept its last request would unmap a dead session's arena much later."""
    area = mmap.mmap(-1, PAGE_BYTES)
    with running(ring_of(1), *files(1)) as engine:
        assert submit(engine, Operation.READ, memoryview(area)).result(30) is None

        def is_free() -> bool:
            try:
                area.close()
            except BufferError:
                return False
            return True

        wait_until(is_free)


def test_a_kernel_short_of_memory_is_asked_again(
    files: MakeFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    submit_entry, refusals = Ring.submit, [OSError(errno.EAGAIN, "try again")]

    def short_of_memory(ring: Ring, opcode: Opcode, **entry: int) -> None:
        if opcode is Opcode.READV and refusals:
            raise refusals.pop()
        submit_entry(ring, opcode, **entry)

    monkeypatch.setattr(Ring, "submit", short_of_memory)
    with running(ring_of(1), *files(1)) as engine:
        assert submit(engine, Operation.READ, aligned(PAGE_BYTES)).result(30) is None
    assert "takes no transfer: try again" in caplog.text


def test_a_transfer_that_could_not_begin_kept_its_place_for_ever(
    files: MakeFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: the device had a place less, and the engine never ended."""
    submit_entry, errors = Ring.submit, [MemoryError()]

    def out_of_memory(ring: Ring, opcode: Opcode, **entry: int) -> None:
        if opcode is Opcode.READV and errors:
            raise errors.pop()
        submit_entry(ring, opcode, **entry)

    monkeypatch.setattr(Ring, "submit", out_of_memory)
    engine = RingEngine(files(1), depth=1)
    with pytest.raises(MemoryError):
        submit(engine, Operation.READ, aligned(PAGE_BYTES))
    after = submit(engine, Operation.READ, aligned(PAGE_BYTES))
    assert closes(engine)
    assert after.result(0) is None


def test_a_ring_reports_every_entry_once_however_often_it_wraps() -> None:
    ring = Ring(4)
    for start in range(0, 40, 4):
        for token in range(start, start + 4):
            ring.submit(Opcode.NOP, token=token)
        found: list[Completion] = []
        while len(found) < 4:
            found += ring.wait()
        assert found == [Completion(token, 0) for token in range(start, start + 4)]
    ring.close()


def test_a_system_without_io_uring_says_so() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        Ring(0)


def test_an_entry_that_the_kernel_refused_leaves_no_trace() -> None:
    ring = Ring(4)
    descriptor, ring._descriptor = ring._descriptor, -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        ring.submit(Opcode.NOP, token=1)
    ring._descriptor = descriptor
    ring.submit(Opcode.NOP, token=2)
    assert ring.wait() == [Completion(2, 0)]
    ring.close()
