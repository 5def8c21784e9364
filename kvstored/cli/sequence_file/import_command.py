"""``kvstored import``: a sequence from a file that ``export`` wrote."""

import argparse
from pathlib import Path

from kvstored.cli.connection import connected
from kvstored.cli.errors import CommandError
from kvstored.cli.options import add_json_option
from kvstored.cli.output import Cell, Report, progress_bar, write_report
from kvstored.cli.sequence_file.contents import FileHeader
from kvstored.cli.sequence_file.file import read_chunks, read_header
from kvstored.cli.sequence_file.transfer import store_chunks, store_client
from kvstored.config import load_config
from kvstored_client import Client
from kvstored_contract.layout import StateLayout
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    verb.add_argument("file", type=Path, help="a file that `kvstored export` wrote")
    verb.add_argument("--name", default="", help="name of the sequence (default: as in the file)")
    verb.add_argument("--check", action="store_true", help="verify the file and store nothing")
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """Verifies the whole file, stores its chunks in order, and makes the sequence last."""
    socket = load_config(options.config).server.socket
    header = read_header(options.file)
    name = options.name or header.name
    # All of it before anything is stored.
    keys = [chunk.key for chunk in read_chunks(options.file)]
    values: dict[str, Cell] = {
        "sequence": name,
        "chunks": len(keys),
        "tokens": len(keys) * header.layout.chunk_tokens,
    }
    if options.check:
        report = Report(title=f"{options.file} is whole", values=values)
    else:
        values["stored_chunks"] = stored(socket, options.file, header, name=name, keys=keys)
        report = Report(title=f"{name} is stored", values=values)
    write_report(report, as_json=options.json)
    return 0


def stored(socket: Path, file: Path, header: FileHeader, *, name: str, keys: list[bytes]) -> int:
    """Stores what is in the file; returns how many chunks are new. Raises CommandError."""
    with connected(socket) as connection:
        namespace = connection.welcome.namespace
    if namespace != header.namespace:
        raise CommandError(
            f"{file} is of the namespace {header.namespace!r}, and yours is {namespace!r}, where "
            "nobody would find its keys; import it as a user of the former"
        )
    with store_client(socket, header.layout) as client, progress_bar("importing") as progress:
        if name in client.sequences.list():
            raise CommandError(f"there is a sequence {name!r} already; choose another --name")
        new_chunks = done = 0
        for count, new in store_chunks(client, header.layout, read_chunks(file)):
            new_chunks, done = new_chunks + new, done + count
            progress(done, len(keys))
        make_sequence(client, header.layout, name=name, keys=keys)
    return new_chunks


def make_sequence(client: Client, layout: StateLayout, *, name: str, keys: list[bytes]) -> None:
    """Makes a sequence of stored chunks, whole or not at all.

    Raises CommandError where one of them is not stored any more.
    """
    first, *others = [
        keys[start : start + CHUNKS_PER_CALL_MAX]
        for start in range(0, len(keys), CHUNKS_PER_CALL_MAX)
    ]
    for part in (first, *others):
        if client.match(layout, part).chunk_count < len(part):
            raise CommandError(
                "the store evicted chunks of the sequence before all were stored, and the sequence "
                "is not made; give the store, or the namespace, more room on the devices"
            )
    client.sequences.create(name, layout, keys=first)
    done = len(first)
    try:
        for part in others:
            client.sequences.append(name, part, expected_chunks=done)
            done += len(part)
    finally:
        if done < len(keys):
            client.sequences.delete(name)
