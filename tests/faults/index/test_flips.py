"""One byte of the index's file is changed, then a store starts: right bytes or misses.

Fails when

* ``index_service._is_as_left`` does not look at the file (seen after a clean stop: 93 chunks
  missing without a rebuild; 75 lost by the first puts);
* ``index_batches.next_checked_entries`` does not look the entries up again (seen: 16 chunks missing
  behind a changed key on an upper page);
* ``Index.damaged_entries`` does not use it for the lengths of slices (seen: 30 intact chunks
  missing and in quarantine);
* it takes entries of other lengths (seen: two chunks missing, because deleting the damaged
  entry moved its neighbour);
* ``index_probe.probe`` does not look through the pages (seen: a start that is refused, at flip 64;
  without the mark of ``index_health`` as well: read-only after a restart too, a death by SIGABRT,
  and 14 chunks lost).
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.index.lab import Stop
from tests.support import labs
from tests.support.scale import Scale
from tests.support.seeds import seed


def run(count: int, stop: Stop, tmp_path: Path) -> dict[str, Any]:
    """The script in a process of its own: it forks, which this one with its threads must not."""
    chosen = seed()
    command = [sys.executable, "-m", "tests.faults.index", "--count", str(count)]
    command += ["--seed", str(chosen), "--stops", stop.value, "--json", str(tmp_path / "report")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    report: dict[str, Any] = json.loads((tmp_path / "report").read_text())
    return report


@labs.INDEX_FLIPS.scales("scale")
@pytest.mark.parametrize("stop", Stop)
def test_a_byte_of_the_index_is_changed(stop: Stop, scale: Scale, tmp_path: Path) -> None:
    count = labs.INDEX_FLIPS.size(scale)
    report = run(count, stop, tmp_path)
    assert report["flips"] == count
    if scale is Scale.LONG:
        # All kinds of damage were there.
        assert {"rebuilt", "records dropped", "harmless"} <= set(report["verdicts"][stop.value])
