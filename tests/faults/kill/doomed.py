"""A client that is killed in the middle of what it does; it never says goodbye."""

from itertools import count
from typing import Any

from kvstored_client import Ack, AppendItem, Client, Order, Placement
from tests.faults.kill.conversations import CHUNK_TOKENS, ROWS
from tests.faults.kill.payload import ARENA_BYTES, SMALL, chunk_bytes, key_of, new_chunk, payload_of
from tests.faults.sequence_model import SequenceModel
from tests.support.rows import TOKEN_IDS
from tests.support.template import wait_for_go

LEASE_MS = 600_000
BATCH = 4
FLUSHED_TOKENS = CHUNK_TOKENS + 6
LOST_TOKENS = 3
"""Rows that are appended behind the flush."""
NAME_PREFIX = "doomed-"
PUTS, READS, APPENDS = "put", "read", "append"
EVERYTHING = "all"
DOOMED = "tests.faults.kill.doomed:run_doomed"
"""The job that a template forks."""


def run_doomed(arguments: dict[str, Any]) -> None:
    """Does its ``action``, or EVERYTHING, once, or for ever if it ``repeats``.

    It puts generation 1 of ``numbers``, a few at a time. It leases, pins and reads the
    chunks ``held``, and gives nothing of that back. It appends to sequences of its own, one of
    which ends with it, flushes the other one, and leaves both open.
    """
    wait_for_go(arguments)
    client = Client(arguments["socket"], arena_bytes=ARENA_BYTES, name="doomed", strict=True)
    numbers, held = arguments["numbers"], arguments["held"]
    for turn in count():
        if arguments["action"] in (PUTS, EVERYTHING):
            start = turn * BATCH % len(numbers)
            _put(client, numbers[start : start + BATCH])
        if arguments["action"] in (READS, EVERYTHING):
            _read(client, held)
        if arguments["action"] in (APPENDS, EVERYTHING):
            _append(client, numbers[0] + turn)
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


def doomed_model(number: int) -> SequenceModel:
    """What ``_append`` leaves of a named sequence at most, and what it may leave of it."""
    tokens = [(number * 37 + place) % TOKEN_IDS for place in range(FLUSHED_TOKENS + LOST_TOKENS)]
    begun = SequenceModel(chunk_tokens=CHUNK_TOKENS, tokens=tuple(tokens[:FLUSHED_TOKENS]))
    return begun.flush_begun().appended(tokens[FLUSHED_TOKENS:])


def _append(client: Client, number: int) -> None:
    tokens = doomed_model(number).tokens
    # The named one first: so its name tells whatever was stored.
    named, own = f"{NAME_PREFIX}{number}", f"{NAME_PREFIX}own-{number}"
    client.sequences.create(named, SMALL)
    client.sequences.create(own, SMALL, ephemeral=True)
    flushed = tokens[:FLUSHED_TOKENS]
    _append_rows(client, [named, own], 0, flushed, ROWS.keys(flushed))
    client.sequences.flush(named, ROWS.tail_key(flushed), expected_tokens=FLUSHED_TOKENS)
    _append_rows(client, [named, own], FLUSHED_TOKENS, tokens[FLUSHED_TOKENS:], [])


def _append_rows(
    client: Client, names: list[str], first_token: int, tokens: tuple[int, ...], keys: list[bytes]
) -> None:
    """Appends the same rows to several sequences."""
    payload = ROWS.snapshot(tokens)
    region = client.allocate(len(payload))
    assert region is not None
    items = [
        AppendItem(
            sequence=name,
            first_token=first_token,
            first_row=0,
            token_count=len(tokens),
            keys=keys,
        )
        for name in names
    ]
    with region:
        region.view[:] = payload
        client.append(SMALL, region, len(tokens), items)


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
