"""A daemon is killed, or a client: how soon the one accepts again, and all is back of the other.

Nothing runs beside these tests. Waits for a processor that others used are taken off all the
same. The labs of kills try many more moments, and ask for no time; the long run of kills judges
the share of slow starts.

Fails when ``run_daemon`` sleeps for 2 s, and when ``SessionTable._close`` begins 3.5 s late. One
that begins 1.5 s late can pass on a busy machine: what daemon and test wait for a processor
meanwhile is taken off.
"""

from pathlib import Path

from tests.faults.kill.client_kills import Outcome, moments
from tests.faults.kill.doomed import EVERYTHING
from tests.faults.kill.killable import READY_WITHIN_S
from tests.faults.kill.random_kills import Plan, run
from tests.faults.kill.test_client_kills import run as run_client_kills
from tests.support import labs
from tests.support.attempts import least
from tests.support.seeds import seed
from tests.support.sharing import ALONE
from tests.support.template import Template

BACK_WITHIN_S = 1.0
"""The promise: what a killed client held is back in this time."""


@ALONE
@labs.TIMED_STARTS.sizes("kill_count")
def test_a_killed_daemon_accepts_again_in_time(
    kill_count: int, tmp_path: Path, template: Template
) -> None:
    """Half of the starts, because the plain one among them starts two interpreters as well."""
    outcome = run(tmp_path, template, Plan(kill_count=kill_count, seed=seed(), evicts=False))
    assert outcome.undisturbed_ready_s_median <= READY_WITHIN_S, outcome


@ALONE
@labs.TIMED_RETURNS.sizes("count")
def test_what_a_killed_client_held_is_back_in_time(
    count: int, tmp_path: Path, template: Template
) -> None:
    """In the best of some runs: each kill waits for a flush, and the disk may be slow once."""
    runs: list[Outcome] = []

    def slowest_s() -> float:
        folder = tmp_path / f"kills {len(runs)}"
        runs.append(run_client_kills(folder, template, moments(count, seed()), EVERYTHING))
        return runs[-1].undisturbed_back_s_max

    assert least(slowest_s, below=BACK_WITHIN_S) < BACK_WITHIN_S, runs
