"""Index writes and flushes that fail: nothing is acknowledged any more, reads go on.

LMDB writes pages (``pwrite64``, ``writev``), flushes them (``fdatasync``) and writes the
meta page through a synchronous descriptor (``pwrite64``). After a failed flush its next
commit would succeed, with pages in it of which nobody knows whether they are on media.
Fails when

* ``Index._write`` does not remember its failure (seen: the puts after it were acknowledged);
* ``ReadPath`` and ``Inspection`` ask an index that cannot be read and have no answer for
  that (seen: after a failed meta page, which makes LMDB refuse to read, chunks in DRAM were
  misses and the statistics were refused).
"""

from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path

import pytest

from kvstored_client import Reason
from tests.faults.flush.lab import PUTS, SMALL, FaultLab, Round
from tests.faults.flush.strace import Injection, needs_strace
from tests.support import labs
from tests.support.daemon import DaemonProcess

pytestmark = needs_strace


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[FaultLab]:
    with DaemonProcess(tmp_path, overrides=SMALL) as daemon:
        lab = FaultLab(daemon)
        yield lab


def check_index_failed(outcome: Round) -> None:
    """Acks end at the fault, and no later flush could make another one true."""
    reasons = [*outcome.reasons, *outcome.reasons_behind]
    acked_count = reasons.index(Reason.INTERNAL)
    assert acked_count < len(outcome.reasons)
    assert set(reasons[:acked_count]) <= {Reason.UNSPECIFIED}
    assert set(reasons[acked_count:]) == {Reason.INTERNAL}
    behind = outcome.trace.after_hit()
    assert not any(call.is_flush for call in behind), behind
    # At most LMDB puts the old meta page back.
    assert len(behind) <= 1, behind
    assert "the index failed; nothing is stored any more" in outcome.log
    assert outcome.failed_devices == (False, False)
    served = {*outcome.fresh, *outcome.numbers[:acked_count]}
    assert served <= set(outcome.readable_after), "chunks in DRAM"
    if not is_closed(outcome):
        assert set(outcome.stored) <= set(outcome.readable_after), "chunks on the devices"


def is_closed(outcome: Round) -> bool:
    """Whether the meta page could not be written: LMDB then refuses to read as well."""
    return "MDB_PANIC" in outcome.log


def fail_call(lab: FaultLab, effect: str, call: str, number: int) -> bool:
    """One call of LMDB fails; False when there were not so many."""
    path = lab.daemon.index / "data.mdb"
    outcome = lab.round(Injection(path=path, calls=(call,), effect=effect, when=str(number)))
    if outcome.is_hit:
        check_index_failed(outcome)
    lab.recover()
    return outcome.is_hit


CALLS = {
    "a flush": ("error=EIO", "fdatasync", 2),
    "a page": ("error=EIO", "pwrite64", 1),
    "the meta page": ("error=EIO", "pwrite64", 2),
    "a part of a page": ("retval=100", "writev", 1),
}


@labs.INDEX_CALLS.first("call", CALLS, name=str)
def test_an_index_that_cannot_be_written(lab: FaultLab, call: str) -> None:
    assert fail_call(lab, *CALLS[call])
    lab.finish()


@labs.FAILING_INDEX_CALLS.marker()
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64", "writev"])
@pytest.mark.parametrize("effect", ["error=EIO", "error=ENOSPC", "retval=100"])
def test_every_call_that_can_fail(lab: FaultLab, effect: str, call: str) -> None:
    """N is counted up until a round is clean, so that no call is left out."""
    if call == "fdatasync" and effect.startswith("retval"):
        pytest.skip("a flush has no length")
    hits = list(takewhile(lambda number: fail_call(lab, effect, call, number), count(1)))
    # Pages are gathered into one call only where they lie side by side.
    assert len(hits) >= (1 if call == "writev" else PUTS)
    lab.finish()
