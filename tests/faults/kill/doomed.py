"""A client that is killed in the middle of what it does; it never says goodbye."""

from itertools import count
from typing import Any

from kvstored_client import Ack, Client, Order, Placement
from tests.faults.kill.payload import ARENA_BYTES, SMALL, chunk_bytes, key_of, new_chunk, payload_of

LEASE_MS = 600_000
BATCH = 4


def run_doomed(arguments: dict[str, Any]) -> None:
    """Does its ``action`` ("put", "read" or "both") once, or for ever if it ``repeats``.

    It puts generation 1 of ``numbers``, a few at a time. It leases, pins and reads the
    chunks ``held``, and gives nothing of that back.
    """
    client = Client(arguments["socket"], arena_bytes=ARENA_BYTES, name="doomed", strict=True)
    numbers, held = arguments["numbers"], arguments["held"]
    for turn in count():
        if arguments["action"] in ("put", "both"):
            start = turn * BATCH % len(numbers)
            _put(client, numbers[start : start + BATCH])
        if arguments["action"] in ("read", "both"):
            _read(client, held)
        if not arguments["repeats"]:
            return


def _put(client: Client, numbers: list[int]) -> None:
    one_bytes = chunk_bytes(numbers[0])
    region = client.allocate(one_bytes * len(numbers))
    assert region is not None
    with region:
        for index, number in enumerate(numbers):
            start = index * one_bytes
            region.view[start : start + one_bytes] = payload_of(number, 1)
        chunks = [new_chunk(number) for number in numbers]
        client.put(SMALL, chunks, Placement.contiguous(region, SMALL), ack=Ack.DURABLE)


def _read(client: Client, held: list[int]) -> None:
    keys = [key_of(number) for number in held]
    client.match(SMALL, keys, lease_ms=LEASE_MS)
    client.pin(SMALL, keys, lease_ms=LEASE_MS)
    region = client.allocate(chunk_bytes(held[0]) * len(held))
    assert region is not None
    with (
        region,
        client.read(
            SMALL, keys, Placement.contiguous(region, SMALL), order=Order.LAYER_FIRST
        ) as read,
    ):
        read.wait()
