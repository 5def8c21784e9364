"""The chunks that a command line means: of a sequence, or by the beginning of their key."""

import argparse

from kvstored.cli.connection import CALL_TIMEOUT_S
from kvstored.cli.errors import CommandError
from kvstored.cli.operate.operator_session import OperatorSession
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX
from kvstored_protos.v1 import admin_pb2


def add_selection(verb: argparse.ArgumentParser, *, is_required: bool = True) -> None:
    """Adds ``--sequence``, ``--prefix`` and ``--namespace``."""
    meant = verb.add_mutually_exclusive_group(required=is_required)
    meant.add_argument("--sequence", metavar="NAME", default="", help="chunks of this sequence")
    meant.add_argument(
        "--prefix", metavar="HEX", default="", help="chunks whose key begins with these digits"
    )
    verb.add_argument(
        "--namespace", default="", help="where they are (default: the caller's own namespace)"
    )


def selection_text(options: argparse.Namespace) -> str:
    """What is meant, for people."""
    return f"sequence {options.sequence}" if options.sequence else f"keys {options.prefix}..."


def selected_keys(session: OperatorSession, options: argparse.Namespace) -> list[bytes]:
    """The keys of the chunks; raises CommandError when there are none, or too many."""
    reply = session.operate.FindChunks(
        admin_pb2.FindChunksRequest(
            namespace=options.namespace, sequence=options.sequence, key_prefix=options.prefix
        ),
        metadata=session.metadata,
        timeout=CALL_TIMEOUT_S,
    )
    if reply.truncated:
        raise CommandError(
            f"{selection_text(options)} are more than {CHUNKS_PER_CALL_MAX} chunks; name fewer by "
            "a longer --prefix"
        )
    if not reply.keys:
        raise CommandError(
            f"{selection_text(options)} has no stored chunk in this namespace; look with "
            "`kvstored ls`, or name another --namespace"
        )
    return list(reply.keys)
