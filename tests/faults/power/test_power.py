"""After a power cut at any moment: every acked chunk is there, no wrong byte, a clean check.

So is every sequence with as many tokens as an acked flush has had, unless it was cut since, and
every row that is served is the one that was appended at its place.

A whole store works under strace: three starts, the first of which ends without a clean
stop. From the log the states that a cut can leave are rebuilt: of what was not flushed,
each page of 4 KiB and each name is on media or not. Every state is checked, started from
and read. The seed repeats what the workload does and which states are chosen, not how its
threads interleave: a failing run keeps its recording, which does repeat all.

Replaying a whole log must give the very files that the workload left, or no state counts.
Fails where the product is broken on purpose, and does so each time (one breakage in
`make test-labs`, the others in `make test-long`), with the workload on a broken copy
(`breakage.py`):
`Committer._flush` flushes nothing (seen: "chunk 2 version 0 is lost", "no extent header");
`Committer._commit` applies before it flushes (seen: "no extent header", "no sound header where
the index has extents");
`ChunkStore._delete_visible` frees the extent that `_deleted` should free (seen: "header and
index differ in page checksum, chunk, stamp, epoch"); LMDB does not sync (seen: the index
cannot be opened, "it is kept as index.damaged-1"); `Sequences.flush` does not store the record
(seen: "sequence b: 0 tokens are left, not 2 to 2"); `TailFrames.flush` calls the short chunk
durable at once, and `SequenceRecorder.watch` forgets that a chunk is pending (seen with both:
"sequence a, chunk a92c7d91: it is named and was never durable").
"""

from collections import Counter
from pathlib import Path

import pytest

from tests.faults.power.breakage import Breakage
from tests.faults.power.growth import CHUNK_TOKENS
from tests.faults.power.lab import run_labs
from tests.faults.power.log import Named, Written
from tests.faults.power.marks import (
    MARKS_FILE,
    Mark,
    MarkKind,
    SequenceMark,
    SequenceVerb,
    parse_mark,
)
from tests.faults.power.recording import check_replay, load_recording, record, strace_problem
from tests.faults.power.workload import STARTS
from tests.support import labs
from tests.support.scale import Scale, at
from tests.support.seeds import seed

STATES_BROKEN = 1_000
"""Of each workload of a broken product."""
LABS_BROKEN_MAX = 6
RARE_VERBS = {SequenceVerb.FORK, SequenceVerb.DELETE}
"""A workload may happen to have only one of them."""
BREAKAGES = sorted(Breakage, key=lambda one: one is not Breakage.TAIL_UNAWAITED)
"""First the one that most workloads show."""
OF_SEQUENCES = {Breakage.FLUSH_UNRECORDED, Breakage.TAIL_UNAWAITED, Breakage.CHUNK_UNWATCHED}

PROBLEM = strace_problem()
pytestmark = pytest.mark.skipif(PROBLEM is not None, reason=str(PROBLEM))


@pytest.mark.timeout(3600)
@labs.POWER_STATES.sizes("count")
def test_no_cut_of_power_breaks_a_promise(tmp_path: Path, count: int) -> None:
    state_count = 0
    for report in run_labs(tmp_path, seed=seed(), count=count):
        assert report.broken == (), f"the recording is in {report.folder}"
        state_count += report.state_count
    assert state_count == count


@at(Scale.QUICK)
def test_the_workload_does_what_a_cut_could_spoil(tmp_path: Path) -> None:
    """It replays to its own files, and it stores, deletes, evicts, uses again and restarts.

    Its sequences are flushed inside chunks, cut and forked.
    """
    record(tmp_path, seed=seed())
    check_replay(tmp_path)
    events = load_recording(tmp_path).events
    writes = [event for event in events if isinstance(event, Written)]
    marks = [parse_mark(event.data) for event in writes if event.path == MARKS_FILE]
    kinds = Counter(mark.kind for mark in marks if isinstance(mark, Mark))
    assert min(kinds[kind] for kind in MarkKind) > STARTS * 10, kinds
    answers = [mark for mark in marks if isinstance(mark, SequenceMark) and mark.is_answer]
    verbs = Counter(mark.verb for mark in answers)
    assert min(verbs[verb] for verb in set(SequenceVerb) - RARE_VERBS) > 0, verbs
    assert sum(verbs[verb] for verb in RARE_VERBS) > 0, verbs
    models = [one for mark in answers for one in mark.possible if one is not None]
    assert any(one.flushed and one.complete and one.length % CHUNK_TOKENS for one in models)
    extents = Counter((event.path, event.offset) for event in writes if "device" in event.path)
    assert max(extents.values()) > STARTS
    gone = [event.path for event in events if isinstance(event, Named) and event.is_gone]
    assert gone.count("index/CLEAN") == 1
    assert gone.count("index/SNAPSHOT") == 1


@labs.BREAKAGES.first("breakage", BREAKAGES, name=str)
def test_the_lab_finds_a_broken_product(tmp_path: Path, breakage: Breakage) -> None:
    """One workload may happen not to show it: its threads interleave as they like."""
    *_, last = run_labs(
        tmp_path,
        seed=seed(),
        count=LABS_BROKEN_MAX * STATES_BROKEN,
        count_per_lab=STATES_BROKEN,
        breakage=breakage,
    )
    assert last.broken != ()
    if breakage in OF_SEQUENCES:
        assert "sequence" in last.broken[1], last.broken
