"""Ports for servers that must have a number before they listen."""

import secrets
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST, _TRIES = 15_000, 100


def free_port() -> int:
    """A port of this machine that nobody listens at.

    Below those that the system gives to connections: one of these could be taken before the
    server listens.
    """
    last = int(_RANGE.read_text().split()[0])
    for _ in range(_TRIES):
        port = _FIRST + secrets.randbelow(last - _FIRST)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
    raise RuntimeError(f"no free port from {_FIRST} to {last}")
