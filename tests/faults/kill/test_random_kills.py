"""SIGKILL at random moments of a load: nothing acked as durable is lost, no byte is wrong.

What churns is put, deleted and put again with other bytes in a store that has room for all
of it, so that everything acked must be there. What evicts goes into a full store, so that
the newest third must be there. ``kvstored check`` finds nothing after kills under load,
and a daemon that was killed counts no damage.

Beside both loads sequences grow, are flushed, cut and forked: each has the tokens of its last
acked flush that was not cut since, and every row is the one that was appended at its place.

Fails when the committer calls ``done`` before ``_apply`` (seen at kill 2: "chunk may be
{None} but its bytes are those of generation 1", a deletion that was acked and undone),
when a deletion is acked and its record stays (``IndexChange()`` for
``IndexChange(deletes=(chunk,))``; seen: a chunk fails its checksum, because its extent
was used again), when recovery forgets one extent in use of each slab
(``places[start + 1 : end]`` in ``Recovery._allocator``; seen at kill 4 of the evicting
load: "acked generation {1} is not readable"). Of sequences: when ``Sequences.flush``
keeps the new state and does not store it (seen at kill 28: "sequence b: 0 tokens are left, not 2
to 2"), and when a record names a flushed tail behind fewer chunks than it stands behind
(``flushed`` for ``durable_tail`` in ``SequenceState.record``; seen at kill 41: "65 tokens are
left, but flushed were only [1]").
"""

from pathlib import Path

from tests.faults.kill.random_kills import Plan, run
from tests.support import labs
from tests.support.seeds import seed
from tests.support.template import Template


def check(folder: Path, template: Template, *, kill_count: int, evicts: bool) -> None:
    plan = Plan(kill_count=kill_count, seed=seed(), evicts=evicts)
    outcome = run(folder, template, plan)
    assert outcome.kills >= kill_count, outcome
    # Else there was no load to speak of.
    assert outcome.acked_chunks > kill_count, outcome
    assert outcome.acked_flushes >= plan.flushes_min, outcome
    assert outcome.verified_tails >= plan.flushes_min, outcome


@labs.CHURN_KILLS.sizes("kill_count")
def test_kills_under_load(kill_count: int, tmp_path: Path, template: Template) -> None:
    check(tmp_path, template, kill_count=kill_count, evicts=False)


@labs.EVICTING_KILLS.sizes("kill_count")
def test_kills_of_a_full_store(kill_count: int, tmp_path: Path, template: Template) -> None:
    check(tmp_path, template, kill_count=kill_count, evicts=True)
