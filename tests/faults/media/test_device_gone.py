"""One of three devices goes in the middle of traffic: only its chunks are missed.

It goes either as a file device does after a failed flush (every later error is sticky), or
as a drive that was pulled: every call gives a plain error. Reads go on from the two others,
and what is put from then on becomes durable there.

Fails when ``Extents.allocate`` does not exclude failed devices (seen: puts of new chunks
end with DEVICE_FAILED), and, for plain errors, when ``DeviceFailures.write_failed`` never takes
a device for gone (seen: a third of all new chunks is lost for as long as the store runs).
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from kvstored.io.faults.calls import FailingCalls
from kvstored.store.read.plan import Order
from kvstored_contract.reasons import Reason
from tests.faults.media.lab import aligned_arena, fresh_lab
from tests.faults.media.served import ServedStore
from tests.support.devices import Wrapping

OLD = list(range(18))
GONE = 1
ROUNDS = 8
WRITES_LOST_MAX = 12
"""Chunks of puts that may fail until nothing is sent to the device any more."""


class Traffic:
    """Reads the old chunks and puts new ones until the test ends it."""

    def __init__(self, served: ServedStore) -> None:
        self._served = served
        self._is_over = threading.Event()
        self.rounds = threading.Semaphore(0)
        self.lost_count = 0

    def read(self) -> None:
        """Every byte is compared; the whole ones are always those of the devices that are left."""
        number = 0
        reader = replace(self._served, arena=aligned_arena())
        while not self._is_over.is_set():
            reader.forget_dram(OLD)
            whole = reader.whole(OLD, order=list(Order)[number % 3])
            assert {n for n in OLD if n % 3 != GONE} <= whole
            number += 1
            self.rounds.release()

    def put(self) -> None:
        """New chunks for all three devices, few enough that nothing old is evicted."""
        writer = replace(self._served, arena=aligned_arena())
        number = 300
        while not self._is_over.is_set():
            numbers = [number, number + 1, number + 2]
            reasons = writer.put_settled(numbers)
            assert set(reasons) <= {Reason.UNSPECIFIED, Reason.DEVICE_FAILED}
            self.lost_count += reasons.count(Reason.DEVICE_FAILED)
            writer.delete(numbers)
            number += 3
            self.rounds.release()

    def end(self) -> None:
        self._is_over.set()

    def wait_rounds(self) -> None:
        for _ in range(ROUNDS):
            assert self.rounds.acquire(timeout=60)


@pytest.mark.parametrize("is_sticky", [True, False], ids=["failed stop", "plain errors"])
def test_a_device_goes_in_the_middle_of_traffic(is_sticky: bool) -> None:
    devices = Wrapping(FailingCalls)
    with (
        fresh_lab(device_count=3, slab_count=3) as lab,
        lab.open(devices) as served,
        ThreadPoolExecutor(2) as pool,
    ):
        served.put_durable(OLD)
        traffic = Traffic(served)
        running = [pool.submit(traffic.read), pool.submit(traffic.put)]
        try:
            traffic.wait_rounds()
            devices[GONE].has_failed_stop = is_sticky
            devices[GONE].broken |= {"read", "write", "flush"}
            for _ in range(4):
                traffic.wait_rounds()
        finally:
            traffic.end()
            for future in running:
                future.result()
        served.forget_dram(OLD)
        assert served.whole(OLD) == {n for n in OLD if n % 3 != GONE}
        assert traffic.lost_count <= WRITES_LOST_MAX
        new = list(range(100, 112))
        served.put_durable(new)
        served.forget_dram(new)
        assert served.whole(new) == set(new)
        records = served.records()
        assert {records[n].extent.device_index for n in new} == {0, 2}
        stats = served.store.inspection.stats()
        assert [device.failed for device in stats.devices] == [False, True, False]
        assert stats.counters["device_errors"] > 0
        served.assert_released()
