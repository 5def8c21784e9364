"""``kvstored ping``: whether the daemon answers, and how fast."""

import argparse
import time

from kvstored.cli.connection import CALL_TIMEOUT_S, connected
from kvstored.cli.options import add_json_option
from kvstored.cli.output import Report, write_report
from kvstored.config import load_config
from kvstored_protos.v1 import session_pb2, session_pb2_grpc


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """One call over a fresh session."""
    config = load_config(options.config)
    with connected(config.server.socket) as connection:
        stub = session_pb2_grpc.SessionServiceStub(connection.channel)
        # The first call opens the channel and is not what a client waits for later.
        stub.Ping(session_pb2.PingRequest(), metadata=connection.metadata, timeout=CALL_TIMEOUT_S)
        started_at = time.perf_counter()
        reply = stub.Ping(
            session_pb2.PingRequest(), metadata=connection.metadata, timeout=CALL_TIMEOUT_S
        )
        latency_ms = (time.perf_counter() - started_at) * 1000
        report = Report(
            title=f"the daemon answers on {config.server.socket}",
            values={
                "version": reply.version,
                "epoch": reply.epoch,
                "namespace": connection.welcome.namespace,
                "admin": connection.welcome.admin,
                "latency_ms": round(latency_ms, 3),
            },
        )
    write_report(report, as_json=options.json)
    return 0
