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
from tests.support import labs
from tests.support.daemon import MIB, DaemonProcess
from tests.support.scale import Scale
from tests.support.seeds import seed
from tests.support.sharing import ALONE

GROWTH_BYTES_MAX = {Scale.SMOKE: 24 * MIB, Scale.QUICK: 4 * MIB}
"""That of a leak of a few hundred bytes for each step; heaps still grow in a short run."""
PHASES = {Scale.SMOKE: 1, Scale.QUICK: 2, Scale.LONG: 10}
ROWS_MIN_PER_S = 50
ROWS_MIN_PER_STEP = 1
"""Fewer rows would mean that the load does not append: a step brings about 20 on average."""
TURNS_MIN_PER_S = 1
STEPS_PER_TURN_MAX = 100
"""Fewer turns would mean that conversations fail: every ninth step is one where turns wait."""


def run(folder: Path, scale: Scale) -> SoakReport:
    with DaemonProcess(folder, overrides=OVERRIDES, from_command=True) as daemon:
        report = soak(
            daemon,
            warm_up_s=labs.SOAK_WARM_UP.size(scale),
            seconds=labs.SOAK.size(scale),
            phases=PHASES[scale],
            seed=seed(),
        )
        sys.stdout.write(report.describe() + "\n")
        assert "Traceback" not in daemon.log, daemon.log[-4000:]
    return report


@ALONE
@pytest.mark.timeout(1500)
@labs.SOAK.scales("scale")
def test_a_soak_leaves_nothing_behind(scale: Scale, tmp_path: Path) -> None:
    report = run(tmp_path, scale)
    assert report.states[-1].is_back_at(report.states[0]), report.describe()
    # On a machine that is slow as many as its steps should have brought; on another one turns
    # arrive by the clock.
    seconds, steps = labs.SOAK.size(scale), report.step_count
    rows_min = min(ROWS_MIN_PER_S * seconds, ROWS_MIN_PER_STEP * steps)
    turns_min = min(TURNS_MIN_PER_S * seconds, steps // STEPS_PER_TURN_MAX)
    assert steps > 0
    assert report.append_rows > rows_min, report.describe()
    assert report.turn_count >= turns_min, report.describe()
    assert report.tails == TAILS, report.describe()
    if scale is Scale.LONG:
        assert report.growth <= GROWTH_MAX, report.describe()
    else:
        assert report.growth_bytes < GROWTH_BYTES_MAX[scale], report.describe()
