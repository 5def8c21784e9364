"""``kvstored stats``: what the running daemon holds and has done."""

import argparse
from datetime import UTC, datetime

from kvstored.cli.connection import CALL_TIMEOUT_S, connected
from kvstored.cli.options import add_json_option
from kvstored.cli.output import Cell, Report, write_report
from kvstored.config import load_config
from kvstored_protos.v1 import admin_pb2, admin_pb2_grpc

_VALUES = (
    "epoch",
    "uptime_ms",
    "index_failed",
    "session_count",
    "arenas_used_bytes",
    "arenas_capacity_bytes",
    "lease_count",
    "reads_in_flight_count",
    "pinned_chunk_count",
    "sequence_count",
    "waiting_request_count",
    "chunk_count",
    "dram_chunk_count",
    "dram_used_bytes",
    "dram_capacity_bytes",
)
_DEVICE_COLUMNS = (
    "path",
    "capacity_bytes",
    "used_bytes",
    "read_bytes",
    "written_bytes",
    "read_requests",
    "write_requests",
    "flush_requests",
    "failed",
)


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """Asks the admin service once."""
    config = load_config(options.config)
    with connected(config.server.socket) as connection:
        stats = admin_pb2_grpc.AdminServiceStub(connection.channel).Stats(
            admin_pb2.StatsRequest(), metadata=connection.metadata, timeout=CALL_TIMEOUT_S
        )
    write_report(report_of(stats), as_json=options.json)
    return 0


def report_of(stats: admin_pb2.StatsReply) -> Report:
    """Devices as rows, everything else as values; counters in the order of their names."""
    values: dict[str, Cell] = {name: getattr(stats, name) for name in _VALUES}
    values["scrub_progress"] = stats.scrub.progress
    values["scrub_ended"] = moment(stats.scrub.ended_ms)
    values.update(sorted(stats.counters.items()))
    return Report(
        title="kvstored",
        values=values,
        columns=_DEVICE_COLUMNS,
        rows=[
            tuple(getattr(device, column) for column in _DEVICE_COLUMNS) for device in stats.devices
        ],
    )


def moment(since_1970_ms: int) -> str:
    """A time of day in UTC; "never" for 0."""
    if since_1970_ms == 0:
        return "never"
    return datetime.fromtimestamp(since_1970_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
