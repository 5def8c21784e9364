"""Waits for room on devices that do not answer: each ends at its caller's deadline."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvstored.format.geometry import HEADER_BYTES, class_bytes
from kvstored.io.device import Device, DeviceError
from kvstored.io.passing import PassingDevice
from kvstored.store.write import extents
from kvstored.tiers.chunks.nvme_victims import VICTIMS_PER_ROUND
from kvstored.tiers.chunks.requests import AppendOutcome, PutOutcome, PutTicket
from kvstored.tiers.sequences import append_path
from kvstored_contract.layout import LayerState, StateKind, StateLayout
from kvstored_contract.reasons import Reason
from tests.support.appends import append, create
from tests.support.rows import MIXED
from tests.support.stores import (
    LAYOUT,
    MIB,
    StoreUnderTest,
    open_store,
    put_durable,
)
from tests.support.waiting import PATIENCE_S, SOON_S, soon, wait_until

PER_STORE = (MIB - 4096) // class_bytes(LAYOUT) * 8
SHORT_S = 0.05
WIDE = StateLayout(
    model="wide", dtype="float32", layers=(LayerState(StateKind.KV, 2048),) * 8, chunk_tokens=16
)
"""Chunks of another size class."""


class StallingDevice(PassingDevice):
    """Flushes, and pages written alone (headers of slabs), wait while their gate is closed."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self.flushes = threading.Event()
        self.headers = threading.Event()
        self.flushes.set()
        self.headers.set()
        self.header_error: DeviceError | None = None
        """What headers end with."""

    def flush(self) -> None:
        assert self.flushes.wait(PATIENCE_S)
        super().flush()

    def writev(self, buffers: Sequence[memoryview], offset: int) -> None:
        if sum(map(len, buffers)) == HEADER_BYTES:
            assert self.headers.wait(PATIENCE_S)
            if self.header_error is not None:
                raise self.header_error
        super().writev(buffers, offset)


class Scene:
    """A store on one device that a test can stop."""

    def __init__(self, opened: StoreUnderTest, device: StallingDevice) -> None:
        self.opened = opened
        self.device = device

    def stop_commits(self) -> PutTicket:
        """Lets the committer hang in a flush, after the put that is returned."""
        self.device.flushes.clear()
        (ticket,) = self.opened.put([9000])
        assert ticket.durable is not None
        return ticket

    def fill(self) -> None:
        """Fills all but one extent."""
        self.opened.fill(4)
        for number in range(PER_STORE - 1):
            put_durable(self.opened, [number])


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    devices: list[StallingDevice] = []

    def wrap(device: Device) -> Device:
        devices.append(StallingDevice(device))
        return devices[-1]

    with open_store(
        tmp_path, device_count=1, slabs_per_device=8, dram_bytes=6 * MIB, wrap=wrap
    ) as opened:
        try:
            yield Scene(opened, devices[0])
        finally:
            devices[0].flushes.set()
            devices[0].headers.set()


@contextmanager
def beside(call: Callable[[], list[PutTicket]]) -> Iterator[list[PutTicket]]:
    """The answers of a call that runs in a thread of its own, complete after the body."""
    answers: list[PutTicket] = []
    thread = threading.Thread(target=lambda: answers.extend(call()))
    thread.start()
    try:
        yield answers
    finally:
        thread.join(SOON_S)
    assert not thread.is_alive(), "the call waits for something"


def outcomes(tickets: list[PutTicket]) -> list[tuple[PutOutcome, Reason]]:
    return [(ticket.outcome, ticket.reason) for ticket in tickets]


def test_a_header_that_failed_behind_all_deadlines_left_the_device_in_use(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extents, "OPENING_WAIT_S", SHORT_S)
    scene.opened.fill(1)
    scene.device.header_error = DeviceError("device0", "write", "gone", sticky=False)
    scene.device.headers.clear()
    (ticket,) = scene.opened.put([1], timeout_s=SHORT_S)
    assert ticket.reason is Reason.DEADLINE
    scene.device.headers.set()
    wait_until(lambda: scene.opened.store._store.failures.devices == {0}, within_s=SOON_S)


def test_a_put_waited_for_evictions_behind_its_deadline(scene: Scene) -> None:
    """Bug: a drive that stalled on a full store held every put, and then ended its session."""
    scene.fill()
    last = scene.stop_commits()
    answers = soon(lambda: scene.opened.put([1, 9000, 5000, 5001], timeout_s=SHORT_S))
    assert outcomes(answers) == [
        (PutOutcome.EXISTED, Reason.UNSPECIFIED),
        (PutOutcome.EXISTED, Reason.UNSPECIFIED),
        (PutOutcome.REJECTED, Reason.DEADLINE),
        (PutOutcome.REJECTED, Reason.DEADLINE),
    ]
    assert not scene.device.flushes.is_set()
    scene.device.flushes.set()
    assert last.durable is not None
    assert last.durable.result(PATIENCE_S) is Reason.UNSPECIFIED
    put_durable(scene.opened, [5000, 5001])


def test_one_session_that_waited_held_all_others_behind_one_lock(scene: Scene) -> None:
    """Bug: the lock of evictions was held during their commits."""
    scene.fill()
    scene.stop_commits()
    with beside(lambda: scene.opened.put([5000])) as patient:
        wait_until(lambda: scene.opened.stats().counters.get("evicted_chunks", 0) > 0)
        try:
            hasty = soon(lambda: scene.opened.put([6000], timeout_s=SHORT_S))
            assert not patient
        finally:
            scene.device.flushes.set()
        assert outcomes(hasty) == [(PutOutcome.REJECTED, Reason.DEADLINE)]
    assert outcomes(patient) == [(PutOutcome.STORED, Reason.UNSPECIFIED)]


def test_a_put_waits_until_its_deadline_for_another_that_chooses_what_goes(scene: Scene) -> None:
    scene.fill()
    put_durable(scene.opened, [9000])
    with scene.opened.store._room._eviction_lock:
        answers = soon(lambda: scene.opened.put([5000], timeout_s=SHORT_S))
    assert outcomes(answers) == [(PutOutcome.REJECTED, Reason.DEADLINE)]
    put_durable(scene.opened, [5000])


def test_those_who_wait_for_room_of_one_class_wait_for_the_same_evictions(scene: Scene) -> None:
    scene.fill()
    scene.stop_commits()
    with (
        beside(lambda: scene.opened.put([5000])) as first,
        beside(lambda: scene.opened.put([5001])) as second,
        beside(lambda: scene.opened.put([5002], layout=WIDE)) as wide,
    ):
        evicted = VICTIMS_PER_ROUND + PER_STORE // 8
        try:
            wait_until(
                lambda: scene.opened.stats().counters.get("evicted_chunks", 0) >= evicted,
                within_s=SOON_S,
            )
        finally:
            scene.device.flushes.set()
    assert outcomes(first + second + wide) == [(PutOutcome.STORED, Reason.UNSPECIFIED)] * 3
    assert scene.opened.stats().counters["evicted_chunks"] == evicted


def test_an_append_that_finds_no_room_in_time_drops_its_item(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_path, "ROOM_WAIT_S", SHORT_S)
    scene.fill()
    create(scene.opened, "a")
    scene.stop_commits()
    outcome = soon(lambda: append(scene.opened, {"a": range(MIXED.chunk_tokens)}))
    assert outcome == [AppendOutcome(0, Reason.DEADLINE)]
    scene.device.flushes.set()


def test_the_header_of_a_slab_held_up_every_put(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: it was written under the lock of all allocations, and nobody's deadline counted."""
    monkeypatch.setattr(extents, "OPENING_WAIT_S", SHORT_S)
    scene.opened.fill(1)
    put_durable(scene.opened, [0])
    scene.device.headers.clear()
    with (
        beside(lambda: scene.opened.put([1], layout=WIDE, timeout_s=SHORT_S)) as late,
        beside(lambda: scene.opened.put([2], layout=WIDE, timeout_s=SHORT_S)) as behind,
    ):
        pass
    assert outcomes(late + behind) == [(PutOutcome.REJECTED, Reason.DEADLINE)] * 2
    put_durable(scene.opened, [3])
    used_bytes = sum(device.used_bytes for device in scene.opened.stats().devices)
    assert used_bytes == 2 * class_bytes(LAYOUT) + 2 * class_bytes(WIDE)
    scene.device.headers.set()
    wait_until(
        lambda: (
            sum(device.used_bytes for device in scene.opened.stats().devices)
            == 2 * class_bytes(LAYOUT)
        ),
        within_s=SOON_S,
    )
    (ticket,) = scene.opened.put([1], layout=WIDE)
    assert ticket.durable is not None
    assert ticket.durable.result(PATIENCE_S) is Reason.UNSPECIFIED


def test_a_put_without_any_time_opens_a_slab(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extents, "OPENING_WAIT_S", SOON_S)
    scene.opened.fill(1)
    assert outcomes(scene.opened.put([0], timeout_s=0)) == [(PutOutcome.STORED, Reason.UNSPECIFIED)]
