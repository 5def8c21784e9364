"""Fuzzing of the parsers that take a client's bytes, for atheris or anything that makes bytes.

``python -m tests.faults.clients.fuzz_requests [libFuzzer options]`` runs them under atheris where
that is installed; the quick test drives the same ``TARGETS`` with hypothesis. A target takes
any bytes and returns, or raises only what the daemon tells a client as a refusal; anything
else would be a fault of the daemon.
"""

import math
import mmap
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from google.protobuf.message import DecodeError, Message

from kvstored.format.identity import KEY_BYTES
from kvstored.server.admin_servicer import hex_prefix
from kvstored.server.errors import refusal_of
from kvstored.server.fields import checked_keys, sequence_name
from kvstored.server.session import Session
from kvstored.server.session_socket import _check_hello
from kvstored.server.store_requests import append_request, put_request, read_request
from kvstored_contract.board import board_bytes
from kvstored_contract.handshake import LENGTH, HandshakeError, body_bytes, parse
from kvstored_contract.layout import StateLayout
from kvstored_contract.limits import LAYERS_MAX
from kvstored_contract.snapshot import SnapshotGeometry
from kvstored_protos.v1 import admin_pb2, common_pb2, sequence_pb2, session_pb2, store_pb2
from tests.faults.clients.requests import ENCODED, LAYOUT

ARENA_BYTES = 1 << 20
CHUNK_TOKENS = LAYOUT.chunk_tokens
"""Of both layouts."""


def layout_of(layout_id: bytes) -> StateLayout:
    """Every id but one is that of the same layout, so that fuzzing gets further."""
    return ENCODED if layout_id == ENCODED.layout_id else LAYOUT


@dataclass(slots=True)
class SessionStandIn:
    """The part of a session that requests are read against."""

    namespace_id: bytes = bytes(16)
    identity: Any = field(default_factory=lambda: SimpleNamespace(session_id=1))
    arena: Any = field(
        default_factory=lambda: SimpleNamespace(
            view=memoryview(mmap.mmap(-1, ARENA_BYTES)),
            byte_count=ARENA_BYTES,
            is_on_huge_pages=False,
        )
    )
    is_open: Any = field(default=lambda: True)
    bell: Any = field(default_factory=lambda: SimpleNamespace(ring=lambda: None))
    layouts: Any = field(default_factory=lambda: SimpleNamespace(find=layout_of))


SESSION = cast("Session", SessionStandIn())


def decoded(kind: type[Message], data: bytes) -> Any:
    """The message, or None for bytes that are none."""
    try:
        return kind.FromString(data)
    except DecodeError:
        return None


def refusable(function: Callable[[], object]) -> None:
    """Calls; raises only what is no refusal."""
    try:
        function()
    except Exception as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        assert str(refusal), "a refusal says why"


def fuzz_handshake(data: bytes) -> None:
    """The session socket: length, hello, and what it may ask for."""
    try:
        length = body_bytes(data[: LENGTH.size].ljust(LENGTH.size, b"\0"))
        hello = parse(session_pb2.Hello, data[LENGTH.size :][:length])
    except HandshakeError:
        return
    refusable(lambda: _check_hello(hello))


def fuzz_put(data: bytes) -> None:
    """A put: every slice of what is accepted lies inside the arena."""
    message = decoded(store_pb2.PutRequest, data)
    if message is None:
        return

    def run() -> None:
        put = put_request(message, SESSION, deadline=math.inf)
        for index, chunk in enumerate(put.chunks):
            sizes = list(chunk.geometry(put.layout).slice_bytes)
            check_inside(
                put.placement.fragments(
                    chunk=index, first_layer=0, slice_bytes=sizes, chunk_count=len(put.chunks)
                ),
                sizes,
            )

    refusable(run)


def fuzz_append(data: bytes) -> None:
    """An append: every row of what is accepted is one of a snapshot inside the arena."""
    message = decoded(store_pb2.AppendRequest, data)
    if message is None:
        return

    def run() -> None:
        append = append_request(message, SESSION, deadline=math.inf)
        assert len(append.source) <= ARENA_BYTES
        assert len(append.source) == SnapshotGeometry(append.layout, append.row_count).byte_count
        assert len({item.name for item in append.items}) == len(append.items)
        for item in append.items:
            assert item.token_count > 0
            assert 0 <= item.first_row <= append.row_count - item.token_count
            stop_token = item.first_token + item.token_count
            before, after = item.first_token // CHUNK_TOKENS, stop_token // CHUNK_TOKENS
            assert len(item.keys) == after - before

    refusable(run)


def fuzz_read(data: bytes) -> None:
    """A read: every slice and the board of what is accepted lie inside the arena."""
    message = decoded(store_pb2.ReadRequest, data)
    if message is None:
        return

    def run() -> None:
        read = read_request(message, SESSION, deadline=math.inf)
        layers = range(read.first_layer, read.first_layer + read.layer_count)
        sizes = [LAYOUT.slice_bytes(layer) for layer in layers]
        for index in range(len(read.keys)):
            check_inside(
                read.placement.fragments(
                    chunk=index, first_layer=0, slice_bytes=sizes, chunk_count=len(read.keys)
                ),
                sizes,
            )
        assert read.board.states.shape == (len(read.keys), read.layer_count)
        end = message.board_offset + board_bytes(
            chunk_count=len(read.keys),
            layer_count=read.layer_count,
            has_lengths=read.layout.is_encoded,
        )
        assert end <= ARENA_BYTES

    refusable(run)


def check_inside(fragments_of_slices: tuple[Any, ...], sizes: list[int]) -> None:
    """Every fragment lies inside the arena, and the fragments of a slice make up all of it."""
    for fragments, size in zip(fragments_of_slices, sizes, strict=True):
        pairs = fragments.pairs()
        assert sum(byte_count for _, byte_count in pairs) == size
        assert all(0 <= offset <= offset + count <= ARENA_BYTES for offset, count in pairs)


def fuzz_layout(data: bytes) -> None:
    """A layout: what is accepted survives the way back and has a sane size."""
    message = decoded(common_pb2.StateLayout, data)
    if message is None:
        return

    def run() -> None:
        layout = StateLayout.from_proto(message)
        assert StateLayout.from_proto(layout.to_proto()).layout_id == layout.layout_id
        assert 1 <= layout.layer_count <= LAYERS_MAX
        assert 0 < layout.chunk_bytes() < 2**63

    refusable(run)


def fuzz_keys(data: bytes) -> None:
    """Keys of calls that name chunks only: what is accepted are keys."""
    for kind in (store_pb2.MatchRequest, store_pb2.PinRequest, store_pb2.DeleteRequest):
        message = decoded(kind, data)
        if message is not None:
            refusable(partial(check_keys_of, message.keys))


def check_keys_of(keys: Sequence[bytes]) -> None:
    """Keys of a message as the server takes them."""
    check_keys(checked_keys(keys))


def check_keys(keys: tuple[bytes, ...]) -> None:
    """At least one, and all of the length of a key."""
    assert keys
    assert {len(key) for key in keys} == {KEY_BYTES}


def fuzz_names(data: bytes) -> None:
    """Names of sequences and prefixes of keys."""
    request = decoded(sequence_pb2.SequenceRequest, data)
    if request is not None:
        refusable(lambda: sequence_name(request.name))
    inspect = decoded(admin_pb2.InspectRequest, data)
    if inspect is not None:
        refusable(lambda: hex_prefix(inspect.key_prefix))


TARGETS: tuple[Callable[[bytes], None], ...] = (
    fuzz_handshake,
    fuzz_put,
    fuzz_append,
    fuzz_read,
    fuzz_keys,
    fuzz_layout,
    fuzz_names,
)


def fuzz_one(data: bytes) -> None:
    """One input: the first byte chooses the target."""
    if data:
        TARGETS[data[0] % len(TARGETS)](data[1:])


def main() -> None:
    """Runs libFuzzer for ever, or as its options say."""
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed; the quick tests drive the same targets without it")
    atheris.instrument_all()
    atheris.Setup(sys.argv, fuzz_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
