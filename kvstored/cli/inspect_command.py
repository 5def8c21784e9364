"""``kvstored inspect``: one chunk with its slices."""

import argparse

from kvstored.cli.connection import CALL_TIMEOUT_S, connected
from kvstored.cli.ls_command import CHUNK_COLUMNS, chunk_row
from kvstored.cli.options import add_json_option
from kvstored.cli.output import Cell, Report, write_report
from kvstored.config import load_config
from kvstored_contract.layout import RAW, StateKind
from kvstored_protos.v1 import admin_pb2, admin_pb2_grpc, common_pb2


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    verb.add_argument("key_prefix", help="the beginning of its key (hexadecimal)")
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """Asks the admin service once."""
    config = load_config(options.config)
    request = admin_pb2.InspectRequest(key_prefix=options.key_prefix)
    with connected(config.server.socket) as connection:
        reply = admin_pb2_grpc.AdminServiceStub(connection.channel).Inspect(
            request, metadata=connection.metadata, timeout=CALL_TIMEOUT_S
        )
    write_report(report_of(reply), as_json=options.json)
    return 0


def report_of(reply: admin_pb2.InspectReply) -> Report:
    """What is shown; the index may have lost the chunk's layout, and nothing is said of it then."""
    codec = (reply.layout.codec or RAW) if reply.HasField("layout") else ""
    row = chunk_row(reply.chunk, is_short=False)
    values: dict[str, Cell] = dict(zip(CHUNK_COLUMNS, row, strict=True))
    return Report(
        title=f"chunk {reply.chunk.key.hex()}",
        values={
            **values,
            "parent_key": reply.parent_key.hex(),
            "model": reply.layout.model,
            "dtype": reply.layout.dtype,
            "codec": codec,
        },
        columns=("layer", "kind", "token_bytes", "bytes", "checksum"),
        rows=[
            (layer, *layer_cells(reply.layout, layer), part.bytes, f"{part.checksum:016x}")
            for layer, part in enumerate(reply.slices)
        ],
    )


def layer_cells(layout: common_pb2.StateLayout, layer: int) -> tuple[Cell, Cell]:
    """What is stored of a layer and its bytes a token; empty when the layout is unknown."""
    if layer >= len(layout.layers):
        return "", ""
    state = layout.layers[layer]
    return StateKind(state.kind).name.lower(), state.token_bytes
