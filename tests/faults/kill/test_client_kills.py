"""A client is killed: what it held is back within a second, and nothing is half-written.

Meanwhile another client reads without a miss. Of its sequences nothing is left but what was
durable: complete chunks or the one flush, with the rows that it appended.

Fails when ``SessionTable.close`` does not unpin (seen: "all, client killed at 0.0388...: not back
after 15.0 s: {'extent_bytes': 20480}"), when it does not release the session (seen: "{'arenas':
1}"), when it begins 1.5 s late (seen: "what 5 of 8 clients held was not back within 1.0 s"), and
when ``OpenSequences.end_session`` ends none (seen: "append, client killed at 0.0781...: not back
after 15.0 s: {'frame_bytes': 81920}").
"""

import shutil
from pathlib import Path

import pytest

from tests.faults.kill.call_kills import spread
from tests.faults.kill.client_kills import Outcome, Ward, moments, points_of
from tests.faults.kill.doomed import APPENDS, EVERYTHING, PUTS, READS
from tests.faults.kill.template import Template
from tests.faults.kill.tracing import KillPoint
from tests.faults.seeds import seed

KILLS_LONG = 1000
"""Random kills of a long run, which has those at every call besides."""

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


def tell(capsys: pytest.CaptureFixture[str], action: str, outcome: Outcome) -> None:
    """Shows what a long run has done, also where it passes."""
    with capsys.disabled():
        print(f"\n{outcome.kills} clients killed that did {action!r}: {outcome}")


@needs_strace
@pytest.mark.parametrize(
    ("action", "most"),
    [
        (PUTS, 25),
        (READS, 25),
        (APPENDS, 25),
        pytest.param(PUTS, None, marks=pytest.mark.long),
        pytest.param(READS, None, marks=pytest.mark.long),
        pytest.param(APPENDS, None, marks=pytest.mark.long),
    ],
)
def test_killed_at_a_call(
    action: str, most: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = run_at_calls(tmp_path, action, most)
    if most is None:
        tell(capsys, action, outcome)
    assert outcome.kills > outcome.cycles // 2, outcome


@pytest.mark.parametrize("count", [40, pytest.param(KILLS_LONG, marks=pytest.mark.long)])
def test_killed_at_a_random_moment(
    count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Template() as template:
        outcome = run(tmp_path / "kills", template, moments(count, seed()), EVERYTHING)
    if count == KILLS_LONG:
        tell(capsys, EVERYTHING, outcome)
    assert outcome.kills == count, outcome
