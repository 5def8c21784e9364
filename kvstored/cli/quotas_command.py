"""``kvstored quotas``: what each namespace takes of the tiers, beside its quota."""

import argparse

from kvstored.cli.connection import CALL_TIMEOUT_S, connected
from kvstored.cli.options import add_json_option
from kvstored.cli.output import Cell, Report, write_report
from kvstored.config import load_config
from kvstored_protos.v1 import admin_pb2, admin_pb2_grpc

OTHERS = "(others)"
"""Stands for all namespaces without a quota; no namespace can have this name in the reply."""
_COLUMNS = (
    "dram_used_bytes",
    "dram_guaranteed_bytes",
    "dram_limit_bytes",
    "device_used_bytes",
    "device_guaranteed_bytes",
    "device_limit_bytes",
    "ttl_s",
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
    write_report(report_of(stats, as_json=options.json), as_json=options.json)
    return 0


def report_of(stats: admin_pb2.StatsReply, *, as_json: bool) -> Report:
    """Namespaces as rows. For people a limit or a time that is 0 is "none"."""

    def cell(name: str, value: float) -> Cell:
        is_absent = value == 0 and (name.endswith("limit_bytes") or name == "ttl_s")
        return "none" if is_absent and not as_json else value

    return Report(
        title="kvstored quotas",
        columns=("namespace", *_COLUMNS),
        rows=[
            (one.name or OTHERS, *(cell(name, getattr(one, name)) for name in _COLUMNS))
            for one in stats.namespaces
        ],
    )
