"""The scrub on devices that fail: few attempts, and all that can be read is looked at.

What was broken to see these fail is in ``test_scrub``.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from kvstored.format.identity import ChunkId
from kvstored.format.superblock import DATA_OFFSET
from kvstored.store.index.index import IndexFailure
from kvstored.tiers.scrub.scrub_pass import ERRORS_IN_A_ROW_MAX
from tests.support.devices import BadPlacesDevice, FailingDevice, Wrapping
from tests.support.scrubs import (
    NUMBERS,
    counters,
    findings,
    one_pass,
    place,
    scrubbing,
    stored,
)
from tests.support.stores import (
    NAMESPACE,
    StoreUnderTest,
    key,
    open_store,
)
from tests.support.waiting import wait_until


def test_a_failed_device_is_left_alone(opened: StoreUnderTest) -> None:
    stored(opened, NUMBERS)
    opened.store._store.failures.devices = frozenset({0})
    read_bytes = opened.stats().devices[0].read_bytes
    found = one_pass(opened)
    assert findings(found) == {}
    assert found["scrub_chunks"] == len(NUMBERS) // 2
    assert opened.stats().devices[0].read_bytes == read_bytes


def test_a_device_that_cannot_be_read_costs_few_attempts(tmp_path: Path) -> None:
    numbers = list(range(40))
    devices = Wrapping(FailingDevice)
    with open_store(tmp_path, wrap=devices) as opened:
        stored(opened, numbers)
        devices[1].broken.add("read")
        found = one_pass(opened)
        assert found["device_errors"] == ERRORS_IN_A_ROW_MAX
        assert findings(found) == {"scrub_unread_chunks": 20}
        assert found["scrub_chunks"] == 20
        devices[1].broken.clear()
        assert one_pass(opened)["scrub_chunks"] == 60


def test_bad_places_do_not_hide_what_lies_between_them(tmp_path: Path) -> None:
    numbers = list(range(4 * ERRORS_IN_A_ROW_MAX))
    devices = Wrapping(BadPlacesDevice)
    with open_store(tmp_path, device_count=1, wrap=devices) as opened:
        stored(opened, numbers)
        bad = numbers[::2]
        devices[0].bad = {place(opened, number).offset for number in bad}
        found = one_pass(opened)
        assert findings(found) == {"scrub_unread_chunks": len(bad)}
        assert found["scrub_chunks"] == len(numbers) - len(bad)
        assert found["device_errors"] == len(bad)


@pytest.mark.parametrize("what", ["superblock", "slab", "chunk"])
def test_an_error_that_is_final_makes_the_device_fail_stop(tmp_path: Path, what: str) -> None:
    devices = Wrapping(BadPlacesDevice)
    with open_store(tmp_path, wrap=devices) as opened:
        stored(opened, NUMBERS)
        devices[1].sticky = True
        offset = {"superblock": 0, "slab": DATA_OFFSET, "chunk": place(opened, 3).offset}[what]
        devices[1].bad = {offset}
        found = one_pass(opened)
        assert found["device_errors"] == 1
        assert [device.failed for device in opened.stats().devices] == [
            False,
            True,
        ]
        assert opened.store.match(NAMESPACE, [key(0)]) == 1
        assert opened.store.match(NAMESPACE, [key(1)]) == 0


def test_a_pass_that_meets_a_fault_is_not_the_last(
    opened: StoreUnderTest, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(opened, NUMBERS)
    caplog.set_level(logging.INFO)
    store = opened.store._store
    find, faults = store.find, [IndexFailure("unreadable")]

    def fail_once(chunks: Sequence[ChunkId]) -> object:
        if faults:
            raise faults.pop()
        return find(chunks)

    monkeypatch.setattr(store, "find", fail_once)
    with scrubbing(opened, pass_interval_s=0.01) as scrub:
        wait_until(lambda: counters(opened).get("scrub_passes", 0) >= 2)
        assert scrub.status().ended_ms > 0
    assert caplog.text.count("a scrub pass ended early") == 1
    assert "scrub pass ended: 6 chunks" in caplog.text
