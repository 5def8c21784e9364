"""Framing of the session socket: a little-endian uint32 length, then a protobuf message.

The client sends ``Hello``; the daemon answers ``Welcome`` and, when it did not refuse,
passes two file descriptors with it: the sealed arena, then the eventfd. After that
neither side sends anything: end of file is the other side's death.
"""

import os
import socket
import struct
import time
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

LENGTH = struct.Struct("<I")
HANDSHAKE_BYTES_MAX = 4096
"""Longest message of the handshake; a longer one is refused unread."""
DESCRIPTOR_COUNT = 2
CONNECT_RETRY_S = 0.005
"""How often a client asks again for a place in a full queue of connections."""

MessageT = TypeVar("MessageT", bound=Message)


class HandshakeError(ConnectionError):
    """The other side closed the socket or sent something that is not the handshake."""


def connect(connection: socket.socket, path: str) -> None:
    """Connects a Unix socket within its own time limit; raises OSError.

    A socket with a time limit does not wait for a place in the queue of the one that listens:
    it is refused with EAGAIN at once, although the daemon is there and will come to it.
    """
    timeout_s = connection.gettimeout() or 0.0
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            connection.connect(path)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"its queue of connections has been full for {timeout_s:g} s"
                ) from error
        else:
            return
        time.sleep(CONNECT_RETRY_S)


def frame(message: Message) -> bytes:
    """The message with its length in front."""
    body = message.SerializeToString()
    return LENGTH.pack(len(body)) + body


def body_bytes(header: bytes) -> int:
    """Length of the body announced by ``header``; raises HandshakeError when too long."""
    (length,) = LENGTH.unpack(header)
    if length > HANDSHAKE_BYTES_MAX:
        raise HandshakeError(f"a handshake message of {length} bytes is too long")
    return int(length)


def parse(kind: type[MessageT], body: bytes) -> MessageT:
    """Parses ``body``; raises HandshakeError when it is no such message."""
    message = kind()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise HandshakeError(f"not a {kind.__name__} message") from error
    return message


def receive(connection: socket.socket, kind: type[MessageT]) -> tuple[MessageT, list[int]]:
    """Reads one message and the descriptors that came with it from a blocking socket.

    The caller owns the descriptors; when this raises they are closed. Raises
    HandshakeError at end of file.
    """
    descriptors: list[int] = []

    def exactly(byte_count: int) -> bytes:
        data = b""
        while len(data) < byte_count:
            part, received, _, _ = socket.recv_fds(
                connection, byte_count - len(data), DESCRIPTOR_COUNT
            )
            descriptors.extend(received)
            if not part:
                raise HandshakeError("the other side closed the session socket")
            data += part
        return data

    try:
        return parse(kind, exactly(body_bytes(exactly(LENGTH.size)))), descriptors
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
