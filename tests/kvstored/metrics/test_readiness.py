from dataclasses import replace

import pytest

from kvstored.metrics.readiness import Readiness, report_of
from tests.kvstored.metrics.snapshots import DEVICE, snapshot_of


@pytest.mark.parametrize("phase", [Readiness.RECOVERING, Readiness.DRAINING])
def test_before_and_after_serving_it_takes_no_work(phase: Readiness) -> None:
    assert report_of(phase, None).readiness is phase
    assert report_of(phase, snapshot_of()).readiness is phase
    assert not phase.takes_work


def test_serving() -> None:
    report = report_of(Readiness.SERVING, snapshot_of())
    assert (report.readiness, report.reasons) == (Readiness.SERVING, ())
    assert report.readiness.takes_work


def test_what_has_failed_is_named() -> None:
    failed = replace(DEVICE, path="/d1", failed=True)
    report = report_of(Readiness.SERVING, snapshot_of(devices=(DEVICE, failed), index_failed=True))
    assert report.readiness is Readiness.DEGRADED
    assert report.readiness.takes_work
    assert [reason.split()[0] for reason in report.reasons] == ["/d1", "a"]


def test_a_drained_daemon_says_how_that_ends() -> None:
    report = report_of(Readiness.SERVING, replace(snapshot_of(), is_drained=True))
    assert report.readiness is Readiness.DRAINING
    assert not report.readiness.takes_work
    assert "kvstored drain --resume" in report.reasons[0]
