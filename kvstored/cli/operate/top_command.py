"""``kvstored top``: what the daemon does now, again and again."""

import argparse
import json
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.live import Live

from kvstored.cli.operate.operator_session import operator_session
from kvstored.cli.operate.rates import Rates, rates_of
from kvstored.cli.operate.screen import screen_of
from kvstored.cli.operate.times import seconds
from kvstored.cli.options import add_json_option
from kvstored_protos.v1 import admin_pb2

INTERVAL_S = 2.0


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    verb.add_argument(
        "--interval",
        type=seconds,
        default=INTERVAL_S,
        metavar="TIME",
        help="time between two looks, which rates are of (default: 2s)",
    )
    verb.add_argument("--once", action="store_true", help="look twice, print one screen and end")
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """Until it is interrupted. As JSON it prints one object in a line for each look."""
    console = Console()
    is_live = not options.once and not options.json and console.is_terminal
    with operator_session(options) as session, ExitStack() as shown:
        live = None
        if is_live:
            live = shown.enter_context(Live(console=console, screen=True, auto_refresh=False))
        before, before_s = session.stats(), time.monotonic()
        while True:
            time.sleep(options.interval)
            now, now_s = session.stats(), time.monotonic()
            rates = rates_of(before, now, elapsed_s=now_s - before_s)
            if options.json:
                sys.stdout.write(json.dumps(document(now, rates)) + "\n")
                sys.stdout.flush()
            elif live is not None:
                live.update(screen_of(now, rates), refresh=True)
            else:
                console.print(screen_of(now, rates))
            if options.once:
                return 0
            before, before_s = now, now_s


def document(stats: admin_pb2.StatsReply, rates: Rates) -> dict[str, Any]:
    """A look as JSON has it."""
    return {
        "epoch": stats.epoch,
        "uptime_ms": stats.uptime_ms,
        "session_count": stats.session_count,
        "chunk_count": stats.chunk_count,
        "sequence_count": stats.sequence_count,
        "dram_used_bytes": stats.dram_used_bytes,
        "dram_capacity_bytes": stats.dram_capacity_bytes,
        "reads_in_flight_count": stats.reads_in_flight_count,
        "waiting_request_count": stats.waiting_request_count,
        "pinned_chunk_count": stats.pinned_chunk_count,
        "index_failed": stats.index_failed,
        **asdict(rates),
        "namespaces": [
            {
                "name": one.name,
                "dram_used_bytes": one.dram_used_bytes,
                "dram_limit_bytes": one.dram_limit_bytes,
                "device_used_bytes": one.device_used_bytes,
                "device_limit_bytes": one.device_limit_bytes,
            }
            for one in stats.namespaces
        ],
    }
