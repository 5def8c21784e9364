"""Clients of one arena each, until one is refused: ``connecting.py SOCKET ARENA_BYTES COUNT``.

Prints how many have their arena, and what the daemon said to the one that got none. All that
have one keep it until then, and write to all of it. Runs where only the SDK is installed.
"""

import contextlib
import json
import sys

import numpy as np

from kvstored_client import Client


def connected(socket: str, arena_bytes: int, count: int) -> dict[str, object]:
    """Connects at most ``count`` of them."""
    with contextlib.ExitStack() as open_clients:
        for number in range(count):
            client = open_clients.enter_context(Client(socket, arena_bytes=arena_bytes))
            region = client.allocate(arena_bytes // 2)
            if region is None:
                return {"arenas": number, "refusal": str(client.refusal)}
            region.numpy(np.uint8, (arena_bytes // 2,))[:] = number
        return {"arenas": count, "refusal": ""}


if __name__ == "__main__":
    where, size, wanted = sys.argv[1:]
    sys.stdout.write(json.dumps(connected(where, int(size), int(wanted))) + "\n")
