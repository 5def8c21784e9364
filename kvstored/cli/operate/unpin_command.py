"""``kvstored unpin``: ends a pin, or all."""

import argparse

from kvstored.cli.connection import CALL_TIMEOUT_S
from kvstored.cli.operate.operator_session import operator_session
from kvstored.cli.options import add_json_option, whole_number
from kvstored.cli.output import Report, write_report
from kvstored_protos.v1 import admin_pb2

PIN_ID_MAX = 2**63 - 1


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    which = verb.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "pin_id",
        type=whole_number(PIN_ID_MAX),
        nargs="?",
        help="number that `kvstored pin` printed",
    )
    which.add_argument("--all", action="store_true", help="end all pins of operators")
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """Refused where there is no such pin."""
    with operator_session(options) as session:
        reply = session.operate.UnpinChunks(
            admin_pb2.UnpinChunksRequest(pin_id=0 if options.all else options.pin_id),
            metadata=session.metadata,
            timeout=CALL_TIMEOUT_S,
        )
    write_report(
        Report(title="unpinned", values={"pins": reply.pins, "chunks": reply.chunks}),
        as_json=options.json,
    )
    return 0
