"""A client that is stopped, or never answers: the others go on, and its own things end in time.

Its memory is written and never waited for, so that nothing of the daemon depends on it. The
price in time is measured by ``python -m tests.faults.clients``.

Fails when ``Bell.ring`` waits for its client under a lock that all bells share (seen: the others
stand still), when ``RunQueues._verdict`` does not look at the deadline (seen: nothing is LATE),
and when ``ArenaUse.check_read_limit`` lets every read in (seen: the calls never end).
"""

import contextlib
import time
from pathlib import Path

from kvstored.server.held.arena_use import READS_PER_SESSION_MAX
from kvstored.server.session import LEASES_PER_SESSION_MAX
from kvstored_contract.board import HEAD_BYTES, BoardWord, SliceState, Watch
from kvstored_contract.reasons import Reason
from tests.faults.clients.raw_session import RawSession
from tests.faults.clients.requests import (
    CHUNK_BYTES,
    LAYOUT,
    STORE,
    hostile_key,
    must,
    pin_of,
    put_of,
    read_of,
    register,
)
from tests.faults.clients.test_messages import check_log
from tests.faults.clients.worker_process import WorkerProcess
from tests.faults.memory.process import settled_state, state_when_back
from tests.support.attempts import least
from tests.support.daemon import MIB, DaemonProcess, Overrides
from tests.support.scale import Scale, at
from tests.support.sharing import ALONE
from tests.support.waiting import PATIENCE_S, wait_until

WORKERS = 4
STOPPED_S = 1.0
"""Behind so long the daemon has something to tell the one that is stopped."""
CALLS_MAX = 10_000
SLOW_BYTES_PER_S = 128 * 1024
DEADLINE_MS = 500
DEPTH = 8
"""Requests of a device at a time."""
LATENESS_S_MAX = 1.0
"""Of threads on a machine that does nothing else."""
KEYS = [hostile_key(number) for number in range(32)]
MANY_KEYS = [hostile_key(number) for number in range(96)]
"""So many that slow devices take twice as long for all as until the deadline and what is begun."""


def slow(bytes_per_s: int) -> Overrides:
    """Devices of this rate, and little DRAM."""
    return {"io": {"device_bytes_per_s_max": bytes_per_s}, "dram": {"capacity_bytes": 8 * MIB}}


def slow_down(daemon: DaemonProcess, bytes_per_s: int) -> None:
    """Restarts the daemon with devices of this rate and little DRAM, with nothing in it."""
    daemon.kill()
    daemon.configure(slow(bytes_per_s))
    daemon.start()


def calls_until_refused(session: RawSession, method: str, body: bytes) -> int:
    """How many calls were let in before the limit was reached."""
    for count in range(CALLS_MAX):
        answer = session.call(STORE + method, body)
        if answer.reason:
            assert answer.reason == Reason.LIMIT_EXCEEDED.name, answer
            return count
    return CALLS_MAX


@at(Scale.QUICK)
def test_others_go_on_while_one_is_stopped_and_so_does_it_afterwards(tmp_path: Path) -> None:
    with DaemonProcess(tmp_path, overrides=slow(4 * MIB)) as daemon:
        check_others_go_on(daemon)


def check_others_go_on(daemon: DaemonProcess) -> None:
    with contextlib.ExitStack() as processes:
        workers = [
            processes.enter_context(WorkerProcess(daemon.socket_path, number))
            for number in range(WORKERS)
        ]
        for worker in workers:
            worker.wait_ready()
            worker.run()
        for worker in workers:
            worker.wait_operations(1)
        *others, stopped = workers
        stopped.stop()
        time.sleep(STOPPED_S)
        for worker in others:
            # Not only what it had begun or could begin before it came to stand still.
            worker.wait_operations(3)
        stopped.go_on()
        stopped.wait_operations(2)
        for worker in workers:
            worker.end()
    check_log(daemon)


def read_and_stand_still(daemon: DaemonProcess) -> tuple[set[int], float]:
    """What becomes of the slices of a read that has no time for all, and after how many seconds.

    Its client does nothing from when the read is begun.
    """
    with RawSession(daemon.socket_path) as session:
        register(session)
        must(session.call(STORE + "Put", put_of(MANY_KEYS, chunk_stride=0)))
    slow_down(daemon, SLOW_BYTES_PER_S)
    with RawSession(daemon.socket_path) as session:
        register(session)
        offset = session.welcome.arena_bytes - 4096
        session.arena[offset + 8 * BoardWord.WATCHED] = Watch.PROGRESS
        began = time.monotonic()
        request = read_of(MANY_KEYS, chunk_stride=0, board_offset=offset, deadline_ms=DEADLINE_MS)
        must(session.call(STORE + "Read", request))
        wait_until(lambda: session.arena[offset + 8 * BoardWord.FINISHED] == 1)
        seconds = time.monotonic() - began
        states = set(session.arena[offset + HEAD_BYTES :][: len(MANY_KEYS) * LAYOUT.layer_count])
    check_log(daemon)
    return states, seconds


def test_what_a_stopped_client_began_ends_without_it(daemon: DaemonProcess) -> None:
    states, _ = read_and_stand_still(daemon)
    assert SliceState.LATE in states
    assert states <= {SliceState.RESIDENT, SliceState.LATE}


@ALONE
def test_what_a_stopped_client_began_ends_by_its_deadline(daemon: DaemonProcess) -> None:
    """What was in flight at the deadline is finished: the depth of a device."""
    in_flight_s = DEPTH * CHUNK_BYTES * 1.5 / SLOW_BYTES_PER_S
    seconds_max = DEADLINE_MS / 1000 + in_flight_s + LATENESS_S_MAX

    def seconds() -> float:
        return read_and_stand_still(daemon)[1]

    assert least(seconds, below=seconds_max) < seconds_max


@at(Scale.QUICK)
def test_a_client_that_never_closes_its_reads_and_leases_is_bounded(
    daemon: DaemonProcess,
) -> None:
    with RawSession(daemon.socket_path) as session:
        register(session)
        must(session.call(STORE + "Put", put_of(KEYS, chunk_stride=0)))
    slow_down(daemon, 64 * 1024)
    before = settled_state(daemon.pid)
    with RawSession(daemon.socket_path) as session:
        register(session)
        offset = session.welcome.arena_bytes - 4096
        session.arena[offset + 8 * BoardWord.WATCHED] = Watch.PROGRESS
        read = read_of(KEYS, chunk_stride=0, board_offset=offset)
        assert calls_until_refused(session, "Read", read) == READS_PER_SESSION_MAX
        pin = pin_of(KEYS[:1])
        assert calls_until_refused(session, "Pin", pin) == LEASES_PER_SESSION_MAX
    after = state_when_back(daemon.pid, before, timeout_s=PATIENCE_S)
    assert after.is_back_at(before), (before, after)
    check_log(daemon)
