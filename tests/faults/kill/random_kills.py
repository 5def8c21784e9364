"""SIGKILL of the daemon at random moments, under load and while it starts."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.faults.kill.conversations import Conversations
from tests.faults.kill.killable import READY_WITHIN_S, KillableDaemon
from tests.faults.kill.ledger import Ledger, ViolationError
from tests.faults.kill.load import (
    AppendingWriter,
    ChurningWriter,
    EvictingWriter,
    Writer,
    run_until_killed,
)
from tests.faults.kill.payload import MIB
from tests.support.rows import TOKEN_IDS
from tests.support.template import Template

WRITERS = 3
ANSWERS_MAX = 60
"""Answers of the daemon to all writers before a kill."""
PAUSE_S_MAX = 0.01
"""From the last of them to the kill: other calls are on their way then."""
START_S_MAX = 0.15
START_KILL_SHARE = 0.15
"""Kills that hit the daemon on its way up."""
PLAIN_START_EVERY = 25
MORE_KILLS_MAX = 40
CHURNED_PER_WRITER = 60
SLOW_STARTS_MAX = 0.05
"""Share of many starts that may be slow, because others use the machine and its disk."""
EVICTING_SLAB_COUNT = 3
EXTENTS_IN_FULL_STORE = 2 * EVICTING_SLAB_COUNT * 51
SAFE_USES = EXTENTS_IN_FULL_STORE // 3
"""Eviction takes the chunk used longest ago: none of the newest third of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many kills of which kind; ``seed`` decides everything but the scheduling.

    ``kill_count`` is the least: kills go on until enough was flushed and found again to prove
    something, which a few kills with an unlucky schedule have not (``MORE_KILLS_MAX``).
    """

    kill_count: int
    seed: int
    evicts: bool
    check_every: int = 25

    @property
    def flushes_min(self) -> int:
        """Acked flushes, and tails that were found again, without which the run proves nothing."""
        return self.kill_count // 4 + 1

    @property
    def kills_max(self) -> int:
        return self.kill_count + MORE_KILLS_MAX


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What was done until nothing was found wrong."""

    kills: int = 0
    kills_of_starts: int = 0
    checks: int = 0
    acked_chunks: int = 0
    verified_chunks: int = 0
    acked_flushes: int = 0
    verified_sequences: int = 0
    verified_tails: int = 0
    starts: int = 0
    slow_starts: int = 0
    ready_s_max: float = 0.0
    undisturbed_ready_s_max: float = 0.0
    undisturbed_ready_s_median: float = 0.0

    def judge_starts(self) -> None:
        """Raises ViolationError when more than a few starts were slow."""
        if self.slow_starts > SLOW_STARTS_MAX * self.starts:
            raise ViolationError(
                f"{self.slow_starts} of {self.starts} starts took longer than {READY_WITHIN_S} s, "
                f"the slowest {self.ready_s_max:.2f} s"
            )


def open_store(folder: Path, template: Template, *, evicts: bool) -> KillableDaemon:
    """A store in which all churned chunks have room, or one that is soon full."""
    slab_bytes = MIB if evicts else 4 * MIB
    return KillableDaemon(
        folder,
        template,
        slab_count=EVICTING_SLAB_COUNT if evicts else 6,
        overrides={"store": {"slab_bytes": slab_bytes}, "io": {"depth_per_device": 4}},
    )


def make_writers(ledger: Ledger, plan: Plan) -> list[Writer]:
    """The clients of all lives of the daemon that put chunks."""
    if plan.evicts:
        return [
            EvictingWriter(
                ledger, index=index, seed=plan.seed, kept_count=2 * EXTENTS_IN_FULL_STORE // WRITERS
            )
            for index in range(WRITERS)
        ]
    return [
        ChurningWriter(ledger, index=index, seed=plan.seed, number_count=CHURNED_PER_WRITER)
        for index in range(WRITERS)
    ]


def run(folder: Path, template: Template, plan: Plan) -> Outcome:
    """Kills and verifies; raises ViolationError with the number of the kill that did harm."""
    outcome = Outcome()
    ledger = Ledger(safe_uses=SAFE_USES if plan.evicts else None)
    dice = random.Random(plan.seed)
    conversations = Conversations(
        first_token=dice.randrange(TOKEN_IDS), evicts=plan.evicts, on_used=ledger.used
    )
    writers: list[Writer] = [
        *make_writers(ledger, plan),
        AppendingWriter(conversations, seed=plan.seed),
    ]

    def verify() -> None:
        daemon.verify(ledger, conversations)

    daemon = open_store(folder, template, evicts=plan.evicts)
    try:
        daemon.format()
        for number in range(1, plan.kills_max + 1):
            if number > plan.kill_count and _proves_something(conversations, plan):
                break
            try:
                _kill_once(daemon, verify, writers, dice, number, outcome, plan)
            except ViolationError as error:
                raise ViolationError(
                    f"at kill {number} of {plan}: {error}\n{daemon.log[-2000:]}"
                ) from error
        _end(daemon, verify, outcome)
    finally:
        daemon.close()
    outcome.acked_chunks = ledger.acked_count
    outcome.verified_chunks = ledger.verified_count
    outcome.acked_flushes = conversations.acked_flushes
    outcome.verified_sequences = conversations.verified_sequences
    outcome.verified_tails = conversations.verified_tails
    outcome.starts = daemon.starts
    outcome.slow_starts = daemon.slow_starts
    outcome.ready_s_max = daemon.ready_s_max
    outcome.undisturbed_ready_s_max = max(daemon.undisturbed_ready_s)
    outcome.undisturbed_ready_s_median = median(daemon.undisturbed_ready_s)
    return outcome


def _proves_something(conversations: Conversations, plan: Plan) -> bool:
    return min(conversations.acked_flushes, conversations.verified_tails) >= plan.flushes_min


def _kill_once(
    daemon: KillableDaemon,
    verify: Callable[[], None],
    writers: list[Writer],
    dice: random.Random,
    number: int,
    outcome: Outcome,
    plan: Plan,
) -> None:
    outcome.kills += 1
    if dice.random() < START_KILL_SHARE:
        outcome.kills_of_starts += 1
        daemon.spawn()
        time.sleep(dice.random() * START_S_MAX)
        daemon.kill()
        return
    _start(daemon, number)
    verify()
    answers, pause_s = dice.randint(1, ANSWERS_MAX), dice.random() * PAUSE_S_MAX
    run_until_killed(daemon, writers, answers=answers, pause_s=pause_s)
    if outcome.kills % plan.check_every == 0:
        daemon.check()
        outcome.checks += 1


def _start(daemon: KillableDaemon, number: int) -> None:
    if number % PLAIN_START_EVERY == 0:
        daemon.start_plainly()
    else:
        daemon.spawn()
        daemon.until_ready()


def _end(daemon: KillableDaemon, verify: Callable[[], None], outcome: Outcome) -> None:
    """One more start, an orderly stop and a check."""
    daemon.start_plainly()
    verify()
    if daemon.terminate() != 0:
        raise ViolationError(f"the daemon did not stop in order:\n{daemon.log[-4000:]}")
    daemon.check()
    outcome.checks += 1
