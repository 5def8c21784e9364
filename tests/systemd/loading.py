"""A client that stores without end, or looks whether all that was acknowledged is there.

``loading.py put SOCKET LEDGER`` writes a number to the ledger after the answer that the chunk is
stored; every other chunk is only staged, which a clean stop has to keep as well. It ends with the
first put that is refused. ``loading.py verify SOCKET LEDGER`` prints how many of them are there
with the bytes that were stored, and which are not; ``verify-durable`` leaves out those that were
only staged. Runs where only the SDK is installed.
"""

import hashlib
import json
import sys
from itertools import count
from pathlib import Path

import numpy as np

from kvstored_client import (
    Ack,
    Client,
    LayerState,
    NewChunk,
    Placement,
    PutOutcome,
    StateKind,
    StateLayout,
)

LAYOUT = StateLayout(
    model="loading@1", dtype="float32", layers=(LayerState(StateKind.KV, token_bytes=256),) * 2
)
ACKS = (Ack.DURABLE, Ack.STAGED)
CHUNK_BYTES = 2 * 64 * 256


def key_of(number: int) -> bytes:
    """The key of a chunk."""
    return hashlib.sha256(f"chunk {number}".encode()).digest()


def bytes_of(number: int) -> np.ndarray:
    """Its bytes."""
    return np.random.default_rng(number).integers(0, 256, CHUNK_BYTES, np.uint8)


def put(client: Client, ledger: Path) -> None:
    """Stores until it is refused."""
    region = client.allocate(CHUNK_BYTES)
    assert region is not None
    view = region.numpy(np.uint8, (CHUNK_BYTES,))
    with ledger.open("a") as written:
        for number in count():
            view[:] = bytes_of(number)
            report = client.put(
                LAYOUT,
                [NewChunk(key=key_of(number), token_count=64)],
                Placement.contiguous(region, LAYOUT),
                ack=ACKS[number % 2],
            )
            if [result.outcome for result in report.results] != [PutOutcome.STORED]:
                return
            written.write(f"{number}\n")
            written.flush()


def verify(client: Client, ledger: Path, acks: tuple[Ack, ...] = ACKS) -> None:
    """Reads everything that was acknowledged with one of ``acks``."""
    region = client.allocate(CHUNK_BYTES)
    assert region is not None
    view = region.numpy(np.uint8, (CHUNK_BYTES,))
    # The last line may be cut where the writer was killed.
    lines = [line for line in ledger.read_text().splitlines(keepends=True) if line[-1] == "\n"]
    numbers = [number for number in map(int, lines) if ACKS[number % 2] in acks]
    lost = []
    for number in numbers:
        view[:] = 0
        with client.read(LAYOUT, [key_of(number)], Placement.contiguous(region, LAYOUT)) as read:
            read.wait()
        if not np.array_equal(view, bytes_of(number)):
            lost.append(number)
    sys.stdout.write(json.dumps({"acknowledged": len(numbers), "lost": lost}) + "\n")


if __name__ == "__main__":
    what, socket, ledger = sys.argv[1:]
    with Client(socket, arena_bytes="1MiB") as client:
        if what == "put":
            put(client, Path(ledger))
        else:
            verify(client, Path(ledger), (Ack.DURABLE,) if what == "verify-durable" else ACKS)
