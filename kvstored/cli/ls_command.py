"""``kvstored ls``: the chunks that the running daemon holds."""

import argparse

from kvstored.cli.connection import CALL_TIMEOUT_S, connected
from kvstored.cli.options import add_json_option, whole_number
from kvstored.cli.output import Cell, Report, write_report
from kvstored.config import load_config
from kvstored_contract.limits import LIST_CHUNKS_MAX
from kvstored_protos.v1 import admin_pb2, admin_pb2_grpc

DEFAULT_LIMIT = 100
CHUNK_COLUMNS = (
    "key",
    "namespace_id",
    "layout_id",
    "token_count",
    "device_index",
    "offset",
    "extent_bytes",
    "epoch",
    "in_dram",
    "quarantined",
)


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    verb.add_argument(
        "key_prefix", nargs="?", default="", help="only keys that begin so (hexadecimal)"
    )
    verb.add_argument(
        "--limit",
        type=whole_number(LIST_CHUNKS_MAX),
        default=DEFAULT_LIMIT,
        help="most chunks (default: %(default)s)",
    )
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """Asks the admin service once."""
    config = load_config(options.config)
    request = admin_pb2.ListChunksRequest(key_prefix=options.key_prefix, limit=options.limit)
    with connected(config.server.socket) as connection:
        reply = admin_pb2_grpc.AdminServiceStub(connection.channel).ListChunks(
            request, metadata=connection.metadata, timeout=CALL_TIMEOUT_S
        )
    suffix = ", and there are more (--limit)" if reply.truncated else ""
    report = Report(
        title=f"{len(reply.chunks)} chunks{suffix}",
        values={"truncated": reply.truncated},
        columns=CHUNK_COLUMNS,
        rows=[chunk_row(chunk, is_short=not options.json) for chunk in reply.chunks],
    )
    write_report(report, as_json=options.json)
    return 0


def chunk_row(chunk: admin_pb2.ChunkInfo, *, is_short: bool) -> tuple[Cell, ...]:
    """One chunk; ids are cut to what usually tells them apart when ``is_short``."""
    digits = 12 if is_short else None
    return (
        chunk.key.hex()[: 16 if is_short else None],
        chunk.namespace_id[:digits],
        chunk.layout_id.hex()[:digits],
        *(getattr(chunk, column) for column in CHUNK_COLUMNS[3:]),
    )
