"""Ports for servers that must have a number before they listen."""

import secrets
import socket
from contextlib import suppress
from pathlib import Path

from engine_adapters.vllm.testing.errors import EngineError

SYSTEM_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST_PORT, TRIES = 15_000, 100


def free_port() -> int:
    """A port of this machine that nobody listens at; raises EngineError.

    Below those that the system gives to connections, if there are such: one of these could be
    taken before the server listens.
    """
    end = int(SYSTEM_RANGE.read_text().split()[0])
    for _ in range(TRIES):
        wanted = FIRST_PORT + secrets.randbelow(end - FIRST_PORT) if end > FIRST_PORT else 0
        with suppress(OSError), socket.create_server(("127.0.0.1", wanted)) as probe:
            port: int = probe.getsockname()[1]
            return port
    raise EngineError(f"no port is free from {FIRST_PORT} to {end}")
