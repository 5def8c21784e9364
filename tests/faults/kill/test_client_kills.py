"""A client is killed: what it held is back, and nothing is half-written.

Meanwhile another client reads without a miss. Of its sequences nothing is left but what was
durable: complete chunks or the one flush, with the rows that it appended. ``test_times.py``,
beside which nothing runs, says how soon it is back.

Fails when ``SessionTable.close`` does not unpin (seen: "all, client killed at 0.0388...: not back:
{'extent_bytes': 20480}"), when it does not release the session (seen: "{'arenas': 1}"), and when
``OpenSequences.end_session`` ends none (seen: "append, client killed at 0.0781...: not back:
{'frame_bytes': 81920}").
"""

import shutil
from pathlib import Path

import pytest

from tests.faults.kill.call_kills import SPARE_POINTS, spread
from tests.faults.kill.client_kills import Outcome, Ward, moments, points_of
from tests.faults.kill.doomed import APPENDS, EVERYTHING, PUTS, READS
from tests.faults.kill.tracing import KillPoint
from tests.support import labs
from tests.support.scale import EVERY
from tests.support.seeds import seed
from tests.support.template import Template

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


def run(
    folder: Path,
    template: Template,
    points: list[KillPoint | float],
    action: str,
    *,
    count: int | None = None,
) -> Outcome:
    folder.mkdir()
    ward = Ward(folder, template, "auto")
    try:
        return ward.run(points, action, count=count)
    finally:
        ward.daemon.close()


def run_at_calls(folder: Path, template: Template, action: str, count: int) -> Outcome:
    recording = folder / "recording"
    recording.mkdir()
    points = points_of(recording, template, action, "auto")
    if count == EVERY:
        return run(folder / "kills", template, list(points), action)
    chosen = spread(points, SPARE_POINTS * count, seed())
    return run(folder / "kills", template, list(chosen), action, count=count)


@needs_strace
@labs.CLIENT_CALL_KILLS.sizes("count")
@pytest.mark.parametrize("action", [PUTS, READS, APPENDS])
def test_killed_at_a_call(action: str, count: int, tmp_path: Path, template: Template) -> None:
    outcome = run_at_calls(tmp_path, template, action, count)
    # The recorded run may have made calls that another one does not make.
    wanted = outcome.cycles if count == EVERY else count
    assert outcome.kills > wanted // 2, outcome


@labs.CLIENT_KILLS.sizes("count")
def test_killed_at_a_random_moment(count: int, tmp_path: Path, template: Template) -> None:
    outcome = run(tmp_path / "kills", template, moments(count, seed()), EVERYTHING)
    assert outcome.kills == count, outcome
