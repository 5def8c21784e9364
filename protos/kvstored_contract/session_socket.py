"""The session socket as a client uses it: connecting, and the message that brings descriptors."""

import os
import socket
import time

from kvstored_contract.handshake import LENGTH, HandshakeError, MessageT, body_bytes, parse

DESCRIPTOR_COUNT = 2
CONNECT_RETRY_S = 0.005
"""How often a client asks again for a place in a full queue of connections."""


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
