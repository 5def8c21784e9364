"""SIGKILL at system calls of a put, an append with its flushes, an eviction, a stop and a start.

Stops and starts find sequences with flushed tails, and rows behind them that are lost; every
start goes on with them, so that each tail is loaded and made a part of a longer one.

Each thread of the daemon is traced alone, because strace counts calls thread by thread: so
the N-th call of one thread is never hidden behind the N-th of another. A kill comes when
the call begins, which then has no effect. With io_uring the kernel writes by itself, and
what was submitted before the kill goes on behind it.

Fails when a record is committed before its chunk is written (seen: "put (io_uring), killed
at io_uring_enter 3 of kvstored-put_0: a kill is no damage, but the daemon counts
{'suspected_chunks': 1, 'quarantined_chunks': 1}"), when ``SlabOpenings.write`` writes no
header (seen: check finds "no sound header where the index has extents"), when a rebuild
stores its meta record first (seen: "rebuild (threads), killed at fdatasync 8 of main: acked
generation {1} is not readable"), when recovery forgets one extent of each slab (seen: "evict
(threads), killed at pwrite64 17 of kvstored-commit: ... is not readable"), when
``SequenceRecorder.watch`` does not note that a chunk is pending (seen: "append (threads), killed
at fdatasync 9 of kvstored-commit: sequence a names chunk 1, which is lost"), and when a flushed
tail is loaded with the geometry of a complete chunk (``TailFrames._fill_from_device``; seen:
"start after kill (threads), ...: sequence a, chunk 0, layer 0: other bytes than were appended
there").
"""

import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvstored.io.ring import probe
from tests.faults.kill.call_kills import Lab, Moment, run_series
from tests.faults.kill.tracing import KillPoint
from tests.support import labs
from tests.support.scale import EVERY
from tests.support.seeds import seed
from tests.support.template import Template

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


def need(engine: str) -> None:
    if engine == "io_uring":
        try:
            probe()
        except OSError as error:
            pytest.skip(f"the system refuses io_uring: {error.strerror}")


def check(folder: Path, template: Template, *, moment: Moment, engine: str, count: int) -> None:
    most = None if count == EVERY else count
    need(engine)
    outcome = run_series(folder, template, moment, engine, most=most, seed=seed())
    assert outcome.kills >= (1 if most is None else most // 2), outcome


@labs.CALL_KILLS.sizes("count")
@pytest.mark.parametrize("moment", Moment)
def test_kills_at_calls(moment: Moment, count: int, tmp_path: Path, template: Template) -> None:
    check(tmp_path, template, moment=moment, engine="threads", count=count)


@labs.RING_CALL_KILLS.sizes("count")
def test_kills_at_calls_of_a_put_by_io_uring(
    count: int, tmp_path: Path, template: Template
) -> None:
    check(tmp_path, template, moment=Moment.PUT, engine="io_uring", count=count)


@labs.RING_CALL_KILLS_ELSEWHERE.marker()
@pytest.mark.parametrize("moment", [moment for moment in Moment if moment is not Moment.PUT])
def test_kills_at_every_call_with_io_uring(
    moment: Moment, tmp_path: Path, template: Template
) -> None:
    check(tmp_path, template, moment=moment, engine="io_uring", count=EVERY)


@labs.TRACER_KILLS.first("moment", [Moment.PUT, Moment.START_AFTER_KILL], name=str)
def test_a_kill_as_the_tracer_lets_go_is_seen(
    moment: Moment, tmp_path: Path, template: Template
) -> None:
    """Bug: the process was looked at before it was dead, and counted as alive."""

    @contextmanager
    def killed_in_the_end(pid: int) -> Iterator[Counter[KillPoint]]:
        yield Counter()
        os.kill(pid, signal.SIGKILL)

    lab = Lab(tmp_path, template, moment, "threads")
    try:
        lab.prepare()
        for _ in range(3):
            with lab.run(killed_in_the_end):
                pass
            assert lab.status == -signal.SIGKILL
        assert lab.end().checks > 0
    finally:
        lab.daemon.close()
