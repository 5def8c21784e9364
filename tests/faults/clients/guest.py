"""A client of another user: ``python -m tests.faults.clients.guest SOCKET UID``.

Tries everything on the keys and the names of the host, who has stored them in another
namespace, and prints what it saw as JSON.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

# Imports come first: another user may not be able to read this Python.
import grpc  # noqa: F401

import kvstored_client.threads.transport  # noqa: F401
from kvstored_client import (
    Ack,
    Client,
    LayerState,
    NewChunk,
    NotAdminError,
    Placement,
    StateKind,
    StateLayout,
)

LAYOUT = StateLayout(model="shared", dtype="float32", layers=(LayerState(StateKind.KV, 64),) * 2)
KEYS = [b"shared".ljust(31, b".") + bytes([number]) for number in range(4)]
SEQUENCE = "conversation"
CHUNK_BYTES = Placement.contiguous_bytes(LAYOUT, 1)


def put(client: Client, fill: bytes) -> list[str]:
    """Stores every key with bytes of one value; the outcomes."""
    region = client.allocate(CHUNK_BYTES * len(KEYS))
    assert region is not None
    with region:
        region.view[:] = fill * region.byte_count
        report = client.put(
            LAYOUT,
            [NewChunk(key=key, token_count=LAYOUT.chunk_tokens) for key in KEYS],
            Placement.contiguous(region, LAYOUT),
            ack=Ack.DURABLE,
        )
    return [result.outcome.name for result in report.results]


def read(client: Client) -> tuple[list[bool], list[int]]:
    """Which keys are resident, and which byte values lie in the arena after the read."""
    region = client.allocate(CHUNK_BYTES * len(KEYS))
    assert region is not None
    with region:
        region.view[:] = b"\xee" * region.byte_count
        with client.read(LAYOUT, KEYS, Placement.contiguous(region, LAYOUT)) as progress:
            report = progress.wait()
        return list(report.resident), sorted(set(bytes(region.view)))


def visit(path: Path) -> dict[str, Any]:
    """What the guest sees of the host, then of itself."""
    seen: dict[str, Any] = {}
    with Client(path, arena_bytes="1MiB", strict=True) as client:
        client.prefix_keys(LAYOUT, [])
        seen["namespace"] = client.namespace
        seen["matched"] = client.match(LAYOUT, KEYS, lease_ms=1000).chunk_count
        seen["read"] = read(client)
        seen["is pinned"] = client.pin(LAYOUT, KEYS, lease_ms=1000) is not None
        changes = client.changes(keys=KEYS)
        assert changes is not None
        seen["changes"] = [len(changes.changes), any(changes.are_stored)]
        seen["deleted"] = client.delete(KEYS)
        seen["sequences"] = client.sequences.list()
        seen["sequence is there"] = client.sequences.get(SEQUENCE) is not None
        seen["sequence deleted"] = client.sequences.delete(SEQUENCE)
        try:
            client.admin.list_chunks()
            seen["admin"] = True
        except NotAdminError:
            seen["admin"] = False
        seen["put"] = put(client, b"\x22")
        seen["own read"] = read(client)
        seen["created"] = client.sequences.create(SEQUENCE, LAYOUT) is not None
        seen["own deleted"] = client.delete(KEYS[:1])
    return seen


if __name__ == "__main__":
    os.setgroups([])
    os.setresgid(*[int(sys.argv[2])] * 3)
    os.setresuid(*[int(sys.argv[2])] * 3)
    sys.stdout.write(json.dumps(visit(Path(sys.argv[1]))))
