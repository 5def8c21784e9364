"""``kvstored drain``: no new sessions and writes; done when everything is durable."""

import argparse

from kvstored.cli.connection import CALL_TIMEOUT_S
from kvstored.cli.errors import EXIT_FAILED
from kvstored.cli.operate.operator_session import operator_session
from kvstored.cli.operate.times import add_timeout
from kvstored.cli.options import add_json_option
from kvstored.cli.output import Report, write_report
from kvstored_protos.v1 import admin_pb2


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    verb.add_argument("--resume", action="store_true", help="take sessions and writes again")
    add_timeout(verb, "how long to wait for what is under way")
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """0 when everything is durable, or new work is taken again; 1 when something is under way."""
    with operator_session(options) as session:
        reply = session.operate.Drain(
            admin_pb2.DrainRequest(resume=options.resume, deadline_ms=int(options.timeout * 1000)),
            metadata=session.metadata,
            timeout=options.timeout + CALL_TIMEOUT_S,
        )
    is_done = not (reply.draining and (reply.write_calls or reply.staged_chunks))
    report = Report(
        title=title_of(reply, is_done=is_done),
        values={
            "draining": reply.draining,
            "write_calls": reply.write_calls,
            "staged_chunks": reply.staged_chunks,
            # Without this one.
            "session_count": max(0, reply.session_count - 1),
        },
    )
    write_report(report, as_json=options.json)
    return 0 if is_done else EXIT_FAILED


def title_of(reply: admin_pb2.DrainReply, *, is_done: bool) -> str:
    """What became of the drain."""
    if not reply.draining:
        return "the daemon takes sessions and writes"
    if not is_done:
        return "the daemon drains, and something is still under way; call again"
    return "the daemon is drained: everything is durable, and it may be stopped"
