"""``kvstored export``: a sequence as a file that can be checked."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from kvstored.cli.connection import CALL_TIMEOUT_S, connected
from kvstored.cli.errors import CommandError
from kvstored.cli.options import add_json_option
from kvstored.cli.output import Report, progress_bar, write_report
from kvstored.cli.sequence_file.contents import FileChunk, FileHeader
from kvstored.cli.sequence_file.file import write_file
from kvstored.cli.sequence_file.transfer import store_client, stored_chunks
from kvstored.config import load_config
from kvstored_contract.layout import StateLayout
from kvstored_protos.v1 import admin_pb2, admin_pb2_grpc, sequence_pb2, sequence_pb2_grpc


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    verb.add_argument("sequence", help="name of the sequence, in the caller's own namespace")
    verb.add_argument("file", type=Path, help="where it is written, with all its complete chunks")
    verb.add_argument("--force", action="store_true", help="replace the file")
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """Writes the whole file or none."""
    socket = load_config(options.config).server.socket
    if options.file.exists() and not options.force:
        raise CommandError(f"{options.file} exists; name another file, or add --force")
    header, info = found(socket, options.sequence)
    with store_client(socket, header.layout) as client, progress_bar("exporting") as progress:

        def counted() -> Iterator[FileChunk]:
            chunks = stored_chunks(client, header.layout, info.keys)
            for count, chunk in enumerate(chunks, start=1):
                progress(count, header.chunk_count)
                yield chunk

        try:
            file_bytes = write_file(options.file, header, counted())
        except OSError as error:
            raise CommandError(
                f"cannot write {options.file}: {error.strerror}; name another file"
            ) from error
    report = Report(
        title=f"{options.sequence} is in {options.file}",
        values={
            "chunks": header.chunk_count,
            "tokens": header.chunk_count * header.layout.chunk_tokens,
            "left_out_tokens": info.tail_tokens,
            "file_bytes": file_bytes,
        },
    )
    write_report(report, as_json=options.json)
    return 0


def found(socket: Path, name: str) -> tuple[FileHeader, sequence_pb2.Sequence]:
    """A sequence, and the header of its file; raises CommandError."""
    with connected(socket) as connection:
        info = sequence_pb2_grpc.SequenceServiceStub(connection.channel).Get(
            sequence_pb2.SequenceRequest(name=name),
            metadata=connection.metadata,
            timeout=CALL_TIMEOUT_S,
        )
        if not info.keys:
            raise CommandError(f"the sequence {name!r} has no complete chunk that is durable")
        first = admin_pb2_grpc.AdminServiceStub(connection.channel).Inspect(
            admin_pb2.InspectRequest(key_prefix=info.keys[0].hex()),
            metadata=connection.metadata,
            timeout=CALL_TIMEOUT_S,
        )
        namespace = connection.welcome.namespace
    if not first.HasField("layout"):
        raise CommandError(f"the daemon does not know the layout of the sequence {name!r}")
    header = FileHeader(
        name=name,
        namespace=namespace,
        layout=StateLayout.from_proto(first.layout),
        chunk_count=len(info.keys),
    )
    return header, info
