"""SIGKILL of the daemon at each system call of a put, an append, a flush, a stop and a start."""

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from kvstored_client import Client, StoreError
from tests.faults.kill.conversations import CHUNK_TOKENS, Conversations
from tests.faults.kill.killable import KillableDaemon
from tests.faults.kill.ledger import Ledger, ViolationError
from tests.faults.kill.load import delete, put
from tests.faults.kill.payload import LARGE_EVERY, MIB
from tests.faults.kill.tracing import MAIN_THREAD, KillPoint, killed_at, recorded
from tests.support.template import Template
from tests.support.waiting import PATIENCE_S, POLL_S

SETTLE_S = 0.01
"""What the daemon still does when it has answered or listens."""
PUT_CHUNKS = 6
EVICTING_PUT_CHUNKS = 20
"""More than one round of eviction frees, so that each put evicts."""
FULL_STORE_CHUNKS = 2 * 3 * 51
SAFE_USES = FULL_STORE_CHUNKS // 3
KEPT_CHUNKS = 2 * FULL_STORE_CHUNKS
SPARE_POINTS = 3
"""So many times the calls that were asked for may be tried."""
CHECK_EVERY = 20
SEQUENCE_NAMES = ("a", "b", "c")
FORK_NAME = "d"
APPENDED_CHUNKS_MAX = 60
"""After so many chunks all sequences start over."""

Watch = Callable[[int], AbstractContextManager[Any]]
"""Takes hold of a process."""


class Moment(StrEnum):
    """What the daemon is doing when it is killed."""

    PUT = "put"
    """A deletion, then a put of a large chunk and of several small ones."""
    EVICT = "evict"
    """A put into a full store."""
    APPEND = "append"
    """Rows that complete chunks, flushes of tails, a cut inside one, and a fork."""
    STOP = "stop"
    """An orderly stop."""
    START_AFTER_KILL = "start after kill"
    START_AFTER_STOP = "start after stop"
    REBUILD = "rebuild"
    """A start without an index."""


UNDER_LOAD = (Moment.PUT, Moment.EVICT, Moment.APPEND)
WITH_TAILS = (Moment.STOP, Moment.START_AFTER_KILL, Moment.START_AFTER_STOP)
"""Moments of a store that has flushed tails, and rows behind them that are lost."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """``points`` are the calls at which a kill was tried; some runs do not come so far."""

    points: int = 0
    kills: int = 0
    checks: int = 0
    verified_chunks: int = 0
    verified_tails: int = 0
    starts: int = 0
    slow_starts: int = 0
    ready_s_max: float = 0.0
    undisturbed_ready_s_max: float = 0.0


class Lab:
    """One store for one series: it is killed at a point, started again, and verified."""

    def __init__(self, folder: Path, template: Template, moment: Moment, engine: str) -> None:
        self._moment = moment
        self._trace = folder / "trace"
        is_full = moment is Moment.EVICT
        self._ledger = Ledger(safe_uses=SAFE_USES if is_full else None)
        self._conversations = Conversations()
        self._next = 1
        self._previous: list[int] = []
        self.status: int | None = None
        self.outcome = Outcome()
        self.daemon = KillableDaemon(
            folder,
            template,
            slab_count=3 if is_full else 4,
            overrides={
                "store": {"slab_bytes": MIB if is_full else 4 * MIB},
                "io": {"engine": engine, "depth_per_device": 1},
            },
        )

    def prepare(self) -> None:
        """Formats the store and fills it."""
        self.daemon.format()
        self._make_ready()
        with self.daemon.client() as client:
            count = 1 if self._moment is not Moment.EVICT else FULL_STORE_CHUNKS // 20 + 2
            for _ in range(count):
                put(client, self._ledger, self._small(EVICTING_PUT_CHUNKS))
            if self._moment is not Moment.EVICT:
                put(client, self._ledger, [0])

    def points(self) -> list[KillPoint]:
        """Every call of one run, by recording one."""
        with self.run(lambda pid: recorded(pid, self._trace)) as counts:
            pass
        self._judge_end()
        assert self.status != -signal.SIGKILL, "somebody else has killed the daemon"
        return sorted(
            KillPoint(kind.thread, kind.call, when)
            for kind, count in counts.items()
            if self._is_ours(kind.thread)
            for when in range(1, count + 1)
        )

    def kill_at(self, point: KillPoint) -> bool:
        """Runs once; whether the kill came. Then everything is verified."""
        with self.run(lambda pid: killed_at(pid, point)):
            pass
        self._judge_end()
        is_killed = self.status == -signal.SIGKILL
        self.outcome.points += 1
        self.outcome.kills += is_killed
        is_start = self._moment not in (*UNDER_LOAD, Moment.STOP)
        if is_killed and not is_start and self.outcome.kills % CHECK_EVERY == 0:
            self.daemon.check()
            self.outcome.checks += 1
        self._make_ready()
        return is_killed

    def _judge_end(self) -> None:
        """A daemon ends because it is killed, and where it was asked to stop."""
        if self.status == 0 and self._moment is Moment.STOP:
            return
        if self.status not in (None, -signal.SIGKILL):
            raise ViolationError(f"exit status {self.status}:\n{self.daemon.log[-4000:]}")

    def end(self) -> Outcome:
        """Stops in order and checks."""
        self._make_ready()
        if self.daemon.terminate() != 0:
            raise ViolationError(f"the daemon did not stop in order:\n{self.daemon.log[-4000:]}")
        self.daemon.check()
        self.outcome.checks += 1
        self.outcome.verified_chunks = self._ledger.verified_count
        self.outcome.verified_tails = self._conversations.verified_tails
        self.outcome.starts = self.daemon.starts
        self.outcome.slow_starts = self.daemon.slow_starts
        self.outcome.ready_s_max = self.daemon.ready_s_max
        self.outcome.undisturbed_ready_s_max = max(self.daemon.undisturbed_ready_s)
        return self.outcome

    def _make_ready(self) -> None:
        if self.daemon.process is None:
            self.daemon.spawn()
            self.daemon.until_ready()
            self._verify()

    def _verify(self) -> None:
        self.daemon.verify(self._ledger, self._conversations)
        if self._moment in WITH_TAILS:
            with self.daemon.client() as client:
                self._make_sequences(client)
                # These are lost with the session or with the daemon.
                self._conversations.append(client, dict.fromkeys(SEQUENCE_NAMES, 1))

    def _is_ours(self, thread: str) -> bool:
        """Whether a thread is one of those that this moment keeps busy."""
        if self._moment in UNDER_LOAD:
            return thread.startswith(("kvstored-", "io-"))
        return thread == MAIN_THREAD

    @contextmanager
    def run(self, watched: Watch) -> Iterator[Counter[KillPoint]]:
        """Does what the moment is about, once, while ``watched`` has hold of the process.

        Yields what ``watched`` gives, which may be filled only after the body. ``status`` is
        then None where the daemon lives, else how it has ended.
        """
        self._make_ready()
        self.status = None
        if self._moment in UNDER_LOAD:
            run = self._act_once
        else:
            run = self._stop_once if self._moment is Moment.STOP else self._start_once
        yield from run(watched)

    def _act_once(self, watched: Watch) -> Iterator[Counter[KillPoint]]:
        with self.daemon.client() as client:
            # All threads that are needed exist behind this.
            if self._moment is Moment.APPEND:
                self._make_sequences(client)
            else:
                put(client, self._ledger, self._small(1))
            with watched(self.daemon.pid) as found:
                try:
                    self._act(client)
                    time.sleep(SETTLE_S)
                except StoreError as error:
                    self._wait_for_end(error)
                yield found
            self._lives_or_has_ended(client.admin.stats)

    def _lives_or_has_ended(self, ask: Callable[[], object]) -> None:
        """A daemon that was killed when the tracer let go is not dead at once."""
        if self.status is None:
            try:
                ask()
            except StoreError as error:
                self._wait_for_end(error)

    def _wait_for_end(self, error: StoreError) -> None:
        """A call without an answer means that the daemon is dying, and nothing else."""
        deadline = time.monotonic() + PATIENCE_S
        while self.status is None:
            if time.monotonic() > deadline:
                raise ViolationError(f"{error}, but the daemon lives")
            time.sleep(POLL_S)
            self.status = self.daemon.ended_by()

    def _act(self, client: Client) -> None:
        if self._moment is Moment.APPEND:
            self._append(client)
            return
        if self._moment is Moment.EVICT:
            put(client, self._ledger, self._small(EVICTING_PUT_CHUNKS))
            self._ledger.forget(self._ledger.numbers[:-KEPT_CHUNKS])
            return
        numbers, self._previous = self._previous, self._small(PUT_CHUNKS)
        if numbers:
            delete(client, self._ledger, numbers)
        # A slab that has become empty is opened anew.
        delete(client, self._ledger, [0])
        put(client, self._ledger, [0])
        put(client, self._ledger, self._previous)

    def _make_sequences(self, client: Client) -> None:
        """Sequences whose tails are flushed, each with a few rows more than it had."""
        conversations = self._conversations
        if FORK_NAME in conversations.models:
            conversations.delete(client, FORK_NAME)
        if conversations.key_count > APPENDED_CHUNKS_MAX:
            conversations.retire(client)
        for name in SEQUENCE_NAMES:
            if name not in conversations.models:
                conversations.create(client, name)
        # Three of them have tails at any time, and mostly of different lengths.
        counts = dict(zip(SEQUENCE_NAMES, (5, 17, CHUNK_TOKENS + 1), strict=True))
        conversations.append(client, counts)
        for name in SEQUENCE_NAMES:
            conversations.flush(client, name)

    def _append(self, client: Client) -> None:
        """Everything that can be done to a tail; in the end all of them are flushed."""
        conversations = self._conversations
        first, second, third = SEQUENCE_NAMES
        left = CHUNK_TOKENS - conversations.models[first].length % CHUNK_TOKENS
        # A chunk and the begin of the next one, one row, and a chunk at least.
        conversations.append(client, {first: left + 3, second: 1, third: CHUNK_TOKENS})
        conversations.flush(client, first)
        conversations.truncate(client, first, conversations.models[first].length - 1)
        conversations.fork(client, first, FORK_NAME)
        for name in (FORK_NAME, *SEQUENCE_NAMES):
            conversations.flush(client, name)

    def _stop_once(self, watched: Watch) -> Iterator[Counter[KillPoint]]:
        process = self.daemon.process
        assert process is not None
        with watched(process.pid) as found:
            self.status = self.daemon.terminate()
            yield found

    def _start_once(self, watched: Watch) -> Iterator[Counter[KillPoint]]:
        if self._moment is Moment.START_AFTER_STOP:
            self.daemon.terminate()
        else:
            self.daemon.kill()
        if self._moment is Moment.REBUILD:
            shutil.rmtree(self.daemon.index)
        self.daemon.spawn(held=True)
        process = self.daemon.process
        assert process is not None
        with watched(process.pid) as found:
            self.daemon.release()
            self.daemon.listens_before_it_dies()
            time.sleep(SETTLE_S)
            yield found
        self.status = process.poll()
        if self.status is not None:
            self.daemon.process = None
        self._lives_or_has_ended(self._verify)

    def _small(self, count: int) -> list[int]:
        numbers: list[int] = []
        while len(numbers) < count:
            if self._next % LARGE_EVERY:
                numbers.append(self._next)
            self._next += 1
        return numbers


def run_series(
    folder: Path, template: Template, moment: Moment, engine: str, *, most: int | None, seed: int
) -> Outcome:
    """Kills at ``most`` calls spread over the run, or at every one; raises ViolationError.

    At more of them where less than half of these bring a kill.
    """
    lab = Lab(folder, template, moment, engine)

    def kill_at(point: KillPoint) -> bool:
        try:
            return lab.kill_at(point)
        except ViolationError as error:
            raise ViolationError(f"{moment} ({engine}), killed at {point}: {error}") from error

    try:
        lab.prepare()
        points = lab.points()
        if most is None:
            kill_at_every_call(points, kill_at)
        else:
            # A run may happen not to come to a call that the recorded one has made.
            for point in spread(points, SPARE_POINTS * most, seed):
                if lab.outcome.points >= most and lab.outcome.kills >= most // 2:
                    break
                kill_at(point)
        return lab.end()
    finally:
        lab.daemon.close()


def kill_at_every_call(points: list[KillPoint], kill_at: Callable[[KillPoint], bool]) -> None:
    """For each thread and call counts up until a run ends without a kill.

    Not before the number that was recorded, because a run may happen to need fewer.
    """
    for thread, call in sorted({(point.thread, point.call) for point in points}):
        recorded_count = sum((point.thread, point.call) == (thread, call) for point in points)
        when = 1
        while kill_at(KillPoint(thread, call, when)) or when < recorded_count:
            when += 1


def spread(points: list[KillPoint], most: int, seed: int) -> list[KillPoint]:
    """So many of the points in random order, every kind of call before a second of one kind."""
    dice = random.Random(seed)
    shuffled = dice.sample(points, len(points))
    seen: Counter[tuple[str, str]] = Counter()
    rounds: dict[KillPoint, int] = {}
    for point in shuffled:
        kind = point.thread, point.call
        rounds[point] = seen[kind]
        seen[kind] += 1
    return sorted(shuffled, key=rounds.__getitem__)[:most]
