"""A device that cannot flush or write any more: no ack, no retry, fail stop; the others go on.

strace makes the calls of a real daemon fail. Fails when

* ``FileDevice.flush`` forgets its error and does not call it sticky (seen: the statistics
  call no device failed);
* ``Committer._commit`` gives every member of a group the same outcome (seen: the put whose
  flush failed was acknowledged).
"""

from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path

import pytest

from kvstored.store.write.device_failures import WRITE_ERRORS_MAX
from kvstored_client import Reason
from tests.faults.flush.lab import PUTS, SMALL, FaultLab, Round
from tests.faults.flush.strace import Injection, needs_strace
from tests.support import labs
from tests.support.daemon import DaemonProcess

pytestmark = needs_strace

WRITES_OF_DEVICE = ("pwritev", "pwritev2")
"""Which one it is depends on the C library."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[FaultLab]:
    with DaemonProcess(tmp_path, overrides=SMALL) as daemon:
        yield FaultLab(daemon)


def check_refusals(outcome: Round, *, count: int, is_failed: bool) -> None:
    """So many puts to the first device were refused; all else was acknowledged."""
    refused = [
        (number, reason)
        for number, reason in zip(outcome.numbers, outcome.reasons, strict=True)
        if reason is not Reason.UNSPECIFIED
    ]
    assert [reason for _, reason in refused] == [Reason.DEVICE_FAILED] * count
    assert all(number % 2 == 0 for number, _ in refused)
    assert not {number for number, _ in refused} & set(outcome.readable_after)
    assert set(outcome.reasons_behind) == {Reason.UNSPECIFIED}
    assert outcome.failed_devices == (is_failed, False)
    assert outcome.log.count("has failed stop; its chunks are misses") == is_failed
    others = {number for number in outcome.stored if number % 2 or not is_failed}
    assert others <= set(outcome.readable_after)


def run(lab: FaultLab, effect: str, calls: tuple[str, ...], when: str) -> Round:
    return lab.round(Injection(path=lab.daemon.devices[0], calls=calls, effect=effect, when=when))


def fail_flush(lab: FaultLab, number: int, effect: str = "error=EIO") -> bool:
    """One flush fails; False when there were not so many."""
    outcome = run(lab, effect, ("fdatasync",), str(number))
    if outcome.is_hit:
        check_refusals(outcome, count=1, is_failed=True)
        # Whatever succeeds on this file now would prove nothing of what was written before.
        assert outcome.trace.after_hit() == []
    lab.recover()
    return outcome.is_hit


def fail_write(lab: FaultLab, number: int, effect: str) -> bool:
    """One write fails, which costs its chunk; False when there were not so many."""
    outcome = run(lab, effect, WRITES_OF_DEVICE, str(number))
    if outcome.is_hit:
        check_refusals(outcome, count=1, is_failed=False)
    lab.recover()
    return outcome.is_hit


def fail_all_writes(lab: FaultLab, effect: str) -> None:
    """The device is gone."""
    outcome = run(lab, effect, WRITES_OF_DEVICE, "1+")
    check_refusals(outcome, count=WRITE_ERRORS_MAX, is_failed=True)
    assert [call.is_injected for call in outcome.trace.calls()] == [True] * WRITE_ERRORS_MAX
    lab.recover()


def test_a_flush_that_fails_is_final(lab: FaultLab) -> None:
    assert fail_flush(lab, 2)
    lab.finish()


def test_a_write_that_fails_is_refused(lab: FaultLab) -> None:
    """A drive that was taken out answers ENOSPC, as if it were full: it is a failed drive."""
    assert fail_write(lab, 1, "retval=512")
    fail_all_writes(lab, "error=ENOSPC")
    lab.finish()


@labs.FAILING_FLUSHES.marker()
@pytest.mark.parametrize("effect", ["error=EIO", "error=ENOSPC"])
def test_every_flush_that_can_fail(lab: FaultLab, effect: str) -> None:
    """N is counted up until a round is clean, so that no call is left out."""
    hits = list(takewhile(lambda number: fail_flush(lab, number, effect), count(1)))
    assert len(hits) >= PUTS // 2
    lab.finish()


@labs.FAILING_WRITES.marker()
@pytest.mark.parametrize(
    "effect", ["error=EIO", "error=ENOSPC", "error=ENODATA", "retval=0", "retval=512"]
)
def test_every_write_that_can_fail(lab: FaultLab, effect: str) -> None:
    """The same for writes; in the end all of them fail."""
    hits = list(takewhile(lambda number: fail_write(lab, number, effect), count(1)))
    assert len(hits) >= PUTS // 2
    fail_all_writes(lab, effect)
    lab.finish()
