"""``kvstored warm``: brings chunks from the devices into DRAM before they are read."""

import argparse

from kvstored.cli.connection import CALL_TIMEOUT_S
from kvstored.cli.errors import EXIT_FAILED
from kvstored.cli.operate.operator_session import operator_session
from kvstored.cli.operate.selection import add_selection, selected_keys, selection_text
from kvstored.cli.operate.times import add_timeout
from kvstored.cli.options import add_json_option
from kvstored.cli.output import Report, write_report
from kvstored_protos.v1 import admin_pb2


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    add_selection(verb)
    add_timeout(verb, "what is not in DRAM after so long stays where it is")
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """0 when everything is in DRAM, 1 when something was left."""
    with operator_session(options) as session:
        keys = selected_keys(session, options)
        reply = session.operate.WarmChunks(
            admin_pb2.WarmChunksRequest(
                namespace=options.namespace, keys=keys, deadline_ms=int(options.timeout * 1000)
            ),
            metadata=session.metadata,
            timeout=options.timeout + CALL_TIMEOUT_S,
        )
    report = Report(
        title=f"{selection_text(options)}: {len(keys)} chunks",
        values={
            "loaded_chunks": reply.loaded_chunks,
            "resident_chunks": reply.resident_chunks,
            "left_chunks": reply.left_chunks,
        },
    )
    write_report(report, as_json=options.json)
    return EXIT_FAILED if reply.left_chunks else 0
