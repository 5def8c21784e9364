"""``kvstored doctor``: what about this machine keeps the daemon from serving, or from serving fast.

Changes nothing. It sees the machine as its user: run it as the user of the daemon.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from kvstored.cli.errors import EXIT_FAILED
from kvstored.cli.options import add_json_option
from kvstored.cli.output import Report, write_report
from kvstored.config import Config, load_config
from kvstored.doctor.facts import Facts
from kvstored.doctor.finding import Finding, Verdict
from kvstored.doctor.judge import judge
from kvstored.doctor.machine import look_at_machine
from kvstored.doctor.needs import IoUringNeed, Needs
from kvstored.doctor.places import look_at_device, look_at_folder
from kvstored.io.open_engine import EngineKind
from kvstored.server.listen import is_alive

_IO_URING = {
    EngineKind.AUTO: IoUringNeed.WELCOME,
    EngineKind.IO_URING: IoUringNeed.REQUIRED,
    EngineKind.THREADS: IoUringNeed.NONE,
}


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """0 when nothing is wrong, 1 when something is."""
    config = load_config(options.config)
    findings = judge(look(config), needs_of(config))
    write_report(report_of(findings), as_json=options.json)
    return EXIT_FAILED if any(one.verdict is Verdict.WRONG for one in findings) else 0


def look(config: Config) -> Facts:
    """The machine, and every path that the configuration names."""
    server = config.server
    sockets = dict.fromkeys((server.socket.parent, server.grpc_socket.parent))
    return Facts(
        machine=look_at_machine(),
        devices=tuple(map(look_at_device, config.store.devices)),
        index=look_at_folder(config.store.index),
        sockets=tuple(map(look_at_folder, sockets)),
        is_serving=_is_serving(server.socket),
    )


def _is_serving(socket: Path) -> bool:
    try:
        return socket.is_socket() and is_alive(socket)
    except OSError:
        # This user may not ask.
        return False


def needs_of(config: Config) -> Needs:
    """What the daemon would take with this configuration."""
    return Needs(
        io_uring=_IO_URING[config.io.engine],
        dram_bytes=config.dram.capacity_bytes,
        arenas_bytes=config.server.arenas_bytes_max,
        device_bytes=config.store.device_bytes,
        index_bytes=config.store.index_map_bytes,
        sessions=config.server.sessions_max,
    )


def report_of(findings: Sequence[Finding]) -> Report:
    """Findings as rows, the wrong ones first."""
    order = [Verdict.WRONG, Verdict.NOTE, Verdict.GOOD]
    counts = {verdict: sum(one.verdict is verdict for one in findings) for verdict in order}
    title = "nothing is wrong" if not counts[Verdict.WRONG] else f"{counts[Verdict.WRONG]} wrong"
    return Report(
        title=f"kvstored doctor: {title}, {counts[Verdict.NOTE]} to note",
        columns=("verdict", "subject", "finding", "remedy"),
        rows=[
            (one.verdict.value, one.subject, one.says, one.remedy)
            for one in sorted(findings, key=lambda one: order.index(one.verdict))
        ],
        values={
            "wrong_count": counts[Verdict.WRONG],
            "note_count": counts[Verdict.NOTE],
        },
    )
