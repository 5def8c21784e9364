"""Framing of the session socket: a little-endian uint32 length, then a protobuf message. Pure.

The client sends ``Hello``; the daemon answers ``Welcome`` and, when it did not refuse,
passes two file descriptors with it: the sealed arena, then the eventfd. After that
neither side sends anything: end of file is the other side's death.
"""

import struct
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

LENGTH = struct.Struct("<I")
HANDSHAKE_BYTES_MAX = 4096
"""Longest message of the handshake; a longer one is refused unread."""

MessageT = TypeVar("MessageT", bound=Message)


class HandshakeError(ConnectionError):
    """The other side closed the socket or sent something that is not the handshake."""


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
