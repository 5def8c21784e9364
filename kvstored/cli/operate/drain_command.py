"""``kvstored drain``: no new sessions and writes; done when everything is durable."""

import argparse
from dataclasses import dataclass

from kvstored.cli.connection import CALL_TIMEOUT_S
from kvstored.cli.errors import EXIT_FAILED
from kvstored.cli.operate.operator_session import operator_session
from kvstored.cli.operate.times import add_timeout
from kvstored.cli.options import add_json_option
from kvstored.cli.output import Report, write_report
from kvstored_protos.v1 import admin_pb2

ERRORS = "device_errors"
"""The counter of transfers and flushes that failed."""


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    verb.add_argument("--resume", action="store_true", help="take sessions and writes again")
    add_timeout(verb, "how long to wait for what is under way")
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """0 when everything is durable, or new work is taken again as was asked; else 1."""
    with operator_session(options) as session:
        before = session.stats()
        reply = session.operate.Drain(
            admin_pb2.DrainRequest(resume=options.resume, deadline_ms=int(options.timeout * 1000)),
            metadata=session.metadata,
            timeout=options.timeout + CALL_TIMEOUT_S,
        )
        after = session.stats()
    outcome = outcome_of(reply, before, after, is_resume=options.resume)
    report = Report(
        title=outcome.title,
        values={
            "draining": reply.draining,
            "write_calls": reply.write_calls,
            "staged_chunks": reply.staged_chunks,
            # Without this one.
            "session_count": max(0, reply.session_count - 1),
        },
    )
    write_report(report, as_json=options.json)
    return 0 if outcome.is_done else EXIT_FAILED


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a drain, or of its end."""

    is_done: bool
    title: str


def outcome_of(
    reply: admin_pb2.DrainReply,
    before: admin_pb2.StatsReply,
    after: admin_pb2.StatsReply,
    *,
    is_resume: bool,
) -> Outcome:
    """Done is what was asked for, and nothing less: a daemon is stopped upon it.

    A device that had failed before has nothing that waits for it.
    """
    if not reply.draining:
        if is_resume:
            return Outcome(True, "the daemon takes sessions and writes")
        return Outcome(False, "somebody ended the drain meanwhile; call again")
    if reply.write_calls or reply.staged_chunks:
        return Outcome(False, "the daemon drains, and something is still under way; call again")
    if after.index_failed or after.counters[ERRORS] > before.counters[ERRORS]:
        failed = "the index has failed" if after.index_failed else "a device failed meanwhile"
        return Outcome(
            False,
            f"the daemon is drained, but {failed}: what was staged may be lost; `kvstored stats` "
            "and the log say more",
        )
    return Outcome(True, "the daemon is drained: everything is durable, and it may be stopped")
