"""Memory is fixed at start: what clients do leaves nothing behind in the daemon.

Fails when each read leaves 4 KiB behind (seen: 7.3 MiB more after 20 s), and when
``Session.release`` does not close the bell (seen: 121 threads and 119 descriptors more). Fails
when ``OpenSequences.forget`` does not close the frame (seen: 4 of 28 tails can be opened), when
each append leaves its snapshot behind (seen: 47 MiB more), and when each put of a chunk with a
codec leaves 64 KiB (seen: 16 MiB more).
"""

import sys
from pathlib import Path

import pytest

from tests.faults.memory.soak import GROWTH_MAX, OVERRIDES, TAILS, SoakReport, soak
from tests.faults.seeds import seed
from tests.support.daemon import MIB, DaemonProcess

QUICK_GROWTH_BYTES_MAX = 3 * MIB
ROWS_MIN = 1000
"""Fewer rows would mean that the load does not append."""


def check_soak(folder: Path, *, warm_up_s: float, seconds: float, phases: int) -> SoakReport:
    with DaemonProcess(folder, overrides=OVERRIDES) as daemon:
        report = soak(daemon, warm_up_s=warm_up_s, seconds=seconds, phases=phases, seed=seed())
        sys.stdout.write(report.describe() + "\n")
        assert "Traceback" not in daemon.log, daemon.log[-4000:]
    assert report.states[-1].is_back_at(report.states[0]), report.describe()
    assert report.append_rows > ROWS_MIN
    assert report.tails == TAILS, report.describe()
    return report


def test_a_short_soak_leaves_nothing_behind(tmp_path: Path) -> None:
    """The bound is that of a leak of a few hundred bytes for each step."""
    report = check_soak(tmp_path, warm_up_s=8, seconds=12, phases=2)
    assert report.growth_bytes < QUICK_GROWTH_BYTES_MAX, report.describe()


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_ten_minutes_leave_nothing_behind(tmp_path: Path) -> None:
    report = check_soak(tmp_path, warm_up_s=240, seconds=600, phases=10)
    assert report.growth <= GROWTH_MAX, report.describe()
