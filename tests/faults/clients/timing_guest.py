"""A client that times calls: ``python -m tests.faults.clients.timing_guest SOCKET UID CALLS``.

It asks as another user for keys that the host has stored, and for keys that nobody has, in random
order. It prints how well the time of a call tells which: the area under the curve (AUC), 0.5 where
it tells nothing. As the measure of the instrument it does the same for keys of its own.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

# Imports come first: another user may not be able to read this Python.
import grpc  # noqa: F401
import numpy as np

import kvstored_client.threads.transport  # noqa: F401
from kvstored_client import (
    Ack,
    Client,
    LayerState,
    NewChunk,
    Placement,
    Region,
    StateKind,
    StateLayout,
)

# Chunks of 2 MiB: a hit brings them, which takes time that a miss does not.
LAYOUT = StateLayout(model="timed", dtype="float32", layers=(LayerState(StateKind.KV, 16384),) * 2)
CHUNK_BYTES = Placement.contiguous_bytes(LAYOUT, 1)
KEY_COUNT = 8
ARENA = "8MiB"
GENERATOR = np.random.default_rng(23)


def keys_of(kind: str) -> list[bytes]:
    """Keys that only differ in their first bytes."""
    return [f"{kind}{number:04}".ljust(32, ".").encode() for number in range(KEY_COUNT)]


STORED, UNKNOWN, OWN = keys_of("stored."), keys_of("unknown"), keys_of("own....")


def put(client: Client, keys: Sequence[bytes]) -> None:
    """Stores one chunk under each key."""
    with region_of(client) as region:
        for key in keys:
            report = client.put(
                LAYOUT,
                [NewChunk(key=key, token_count=LAYOUT.chunk_tokens)],
                Placement.contiguous(region, LAYOUT),
                ack=Ack.DURABLE,
            )
            assert [result.outcome.name for result in report.results] == ["STORED"]


def region_of(client: Client) -> Region:
    """Room for one chunk."""
    region = client.allocate(CHUNK_BYTES)
    assert region is not None
    return region


def auc(
    call: Callable[[bytes], None], first: Sequence[bytes], second: Sequence[bytes], count: int
) -> float:
    """How likely a call for one of ``first`` takes longer than one for one of ``second``."""
    is_first = GENERATOR.permutation(np.arange(2 * count) % 2 == 0)
    times_s = np.empty(2 * count)
    for number, one_of_first in enumerate(is_first):
        key = (first if one_of_first else second)[int(GENERATOR.integers(KEY_COUNT))]
        began_s = time.perf_counter()
        call(key)
        times_s[number] = time.perf_counter() - began_s
    # Of equal times each is half before the other.
    _, places, counts = np.unique(times_s, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return float((ranks[is_first].sum() - count * (count + 1) / 2) / count**2)


def visit(path: Path, count: int) -> dict[str, float]:
    """The area for each verb."""
    with Client(path, arena_bytes=ARENA, strict=True) as client, region_of(client) as region:
        put(client, OWN)

        def match(key: bytes) -> None:
            client.match(LAYOUT, [key])

        def read(key: bytes) -> None:
            with client.read(LAYOUT, [key], Placement.contiguous(region, LAYOUT)) as progress:
                progress.wait()

        return {
            "match": auc(match, STORED, UNKNOWN, count),
            "read": auc(read, STORED, UNKNOWN, count),
            "own read": auc(read, OWN, UNKNOWN, count // 2),
        }


if __name__ == "__main__":
    os.setgroups([])
    os.setresgid(*[int(sys.argv[2])] * 3)
    os.setresuid(*[int(sys.argv[2])] * 3)
    sys.stdout.write(json.dumps(visit(Path(sys.argv[1]), int(sys.argv[3]))))
