"""A client is killed: what it held is back within a second, and nothing is half-written.

Meanwhile another client reads without a miss.

Fails when ``SessionTable.close`` does not unpin (seen: "read, client killed at
clock_nanosleep 2 of any: not back after 1.0 s: {'extent_bytes': 20480}"), when it does not
release the session (seen: "{'arenas': 1}"), and when it begins 1.5 s late (seen:
"{'arenas': 1, 'extent_bytes': 20480}").
"""

import shutil
from pathlib import Path

import pytest

from tests.faults.kill.call_kills import spread
from tests.faults.kill.client_kills import Outcome, Ward, moments, points_of
from tests.faults.kill.template import Template
from tests.faults.kill.tracing import KillPoint
from tests.faults.seeds import seed

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


def run(folder: Path, template: Template, points: list[KillPoint | float], action: str) -> Outcome:
    folder.mkdir()
    ward = Ward(folder, template, "auto")
    try:
        return ward.run(points, action)
    finally:
        ward.daemon.close()


def run_at_calls(folder: Path, action: str, most: int | None) -> Outcome:
    with Template() as template:
        recording = folder / "recording"
        recording.mkdir()
        points = points_of(recording, template, action, "auto")
        chosen = points if most is None else spread(points, most, seed())
        return run(folder / "kills", template, list(chosen), action)


@needs_strace
@pytest.mark.parametrize(
    ("action", "most"),
    [
        ("put", 40),
        ("read", 40),
        pytest.param("put", None, marks=pytest.mark.long),
        pytest.param("read", None, marks=pytest.mark.long),
    ],
)
def test_killed_at_a_call(action: str, most: int | None, tmp_path: Path) -> None:
    outcome = run_at_calls(tmp_path, action, most)
    assert outcome.kills > outcome.cycles // 2, outcome


@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.long)])
def test_killed_at_a_random_moment(count: int, tmp_path: Path) -> None:
    with Template() as template:
        outcome = run(tmp_path / "kills", template, moments(count, seed()), "both")
    assert outcome.kills == count, outcome
