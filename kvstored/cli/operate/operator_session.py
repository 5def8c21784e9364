"""A session whose calls are those of operators."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kvstored.cli.connection import CALL_TIMEOUT_S, Connection, connected
from kvstored.config import load_config
from kvstored_protos.v1 import admin_pb2, admin_pb2_grpc


@dataclass(frozen=True, slots=True)
class OperatorSession:
    """Both services of administrators over one connection."""

    connection: Connection

    @property
    def operate(self) -> admin_pb2_grpc.OperatorServiceStub:
        """What changes something."""
        return admin_pb2_grpc.OperatorServiceStub(self.connection.channel)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call carries."""
        return self.connection.metadata

    def stats(self) -> admin_pb2.StatsReply:
        """The whole store at this moment."""
        stub = admin_pb2_grpc.AdminServiceStub(self.connection.channel)
        return stub.Stats(admin_pb2.StatsRequest(), metadata=self.metadata, timeout=CALL_TIMEOUT_S)


@contextmanager
def operator_session(options: argparse.Namespace) -> Iterator[OperatorSession]:
    """A session with the daemon of the configuration; raises CommandError, as do its calls."""
    with connected(load_config(options.config).server.socket) as connection:
        yield OperatorSession(connection)
