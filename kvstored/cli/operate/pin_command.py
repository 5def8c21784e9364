"""``kvstored pin``: keeps chunks from being evicted, for some time; without any, shows all pins."""

import argparse

from kvstored.cli.connection import CALL_TIMEOUT_S
from kvstored.cli.errors import EXIT_FAILED
from kvstored.cli.operate.operator_session import OperatorSession, operator_session
from kvstored.cli.operate.selection import add_selection, selected_keys, selection_text
from kvstored.cli.operate.times import seconds, time_text
from kvstored.cli.options import add_json_option
from kvstored.cli.output import Cell, Report, write_report
from kvstored_protos.v1 import admin_pb2

PIN_S = 3600.0


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    add_selection(verb, is_required=False)
    verb.add_argument(
        "--for",
        dest="duration",
        type=seconds,
        default=PIN_S,
        metavar="TIME",
        help="how long the pin lasts, such as 90s, 15m or 2h; a stop of the daemon ends it, too "
        "(default: 1h)",
    )
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """0 when every chunk is pinned, 1 when some are not stored any more."""
    with operator_session(options) as session:
        if not options.sequence and not options.prefix:
            write_report(all_pins(session), as_json=options.json)
            return 0
        keys = selected_keys(session, options)
        reply = session.operate.PinChunks(
            admin_pb2.PinChunksRequest(
                namespace=options.namespace,
                keys=keys,
                pin_ms=int(options.duration * 1000),
                label=selection_text(options),
            ),
            metadata=session.metadata,
            timeout=CALL_TIMEOUT_S,
        )
    what = selection_text(options)
    kept = f"kept for {time_text(options.duration)}"
    counts: dict[str, Cell] = {
        "pinned_chunks": reply.pinned_chunks,
        "absent_chunks": len(keys) - reply.pinned_chunks,
    }
    # Without a chunk there is no pin, and no number that could be ended.
    is_pinned = reply.pinned_chunks > 0
    report = Report(
        title=f"{what}: {kept if is_pinned else 'nothing of it is stored any more'}",
        values={"pin_id": reply.pin_id, **counts} if is_pinned else counts,
    )
    write_report(report, as_json=options.json)
    return 0 if reply.pinned_chunks == len(keys) else EXIT_FAILED


def all_pins(session: OperatorSession) -> Report:
    """Pins as rows, the oldest first."""
    pins = session.operate.ListPins(
        admin_pb2.ListPinsRequest(), metadata=session.metadata, timeout=CALL_TIMEOUT_S
    ).pins
    return Report(
        title="kvstored pins" if pins else "nothing is pinned",
        columns=("pin_id", "namespace", "what", "chunks", "ends_in_s"),
        rows=[
            (pin.pin_id, pin.namespace, pin.label, pin.chunks, pin.ends_in_ms // 1000)
            for pin in pins
        ],
    )
