"""Numbered chunks: put and read through a client, and told apart by every byte."""

from collections.abc import Iterable, Iterator

import numpy as np

from kvstored_client import (
    Ack,
    Client,
    LayerState,
    NewChunk,
    Placement,
    PutOutcome,
    Reason,
    StateKind,
    StateLayout,
)

LAYOUT = StateLayout(
    model="faults",
    dtype="float32",
    layers=(LayerState(StateKind.KV, 512),) * 4,
    chunk_tokens=16,
)
"""Slices of 8 KiB, chunks of 32 KiB and a header."""
READ_TOGETHER = 32
_UNREAD = 0xA5


def key_of(number: int) -> bytes:
    """A chunk key that is easy to tell in a message."""
    return number.to_bytes(32, "big")


def payload_of(number: int, layout: StateLayout = LAYOUT) -> bytes:
    """What belongs to this number and to no other one."""
    return np.random.default_rng(number).bytes(Placement.contiguous_bytes(layout, 1))


def put(client: Client, number: int, *, layout: StateLayout = LAYOUT) -> Reason:
    """Stores a chunk durably: UNSPECIFIED when it was acknowledged, else why not.

    Even numbers go to the first of two devices, odd ones to the second.
    """
    return put_many(client, [number], layout=layout)[0]


def put_many(
    client: Client, numbers: Iterable[int], *, layout: StateLayout = LAYOUT
) -> list[Reason]:
    """The same for several chunks in one call."""
    wanted = list(numbers)
    region = client.allocate(Placement.contiguous_bytes(layout, len(wanted)))
    assert region is not None
    with region:
        region.view[:] = b"".join(payload_of(number, layout) for number in wanted)
        chunks = [
            NewChunk(key=key_of(number), token_count=layout.chunk_tokens, stripe=number)
            for number in wanted
        ]
        report = client.put(layout, chunks, Placement.contiguous(region, layout), ack=Ack.DURABLE)
    for result in report.results:
        is_durable = result.outcome in {PutOutcome.STORED, PutOutcome.EXISTED}
        assert is_durable == (result.reason is Reason.UNSPECIFIED)
    return [result.reason for result in report.results]


def readable(
    client: Client,
    numbers: Iterable[int],
    *,
    layout: StateLayout = LAYOUT,
    timeout_ms: int = 30_000,
) -> list[int]:
    """Those of the chunks that are there; fails when one has a byte that was not put."""
    wanted = list(numbers)
    return [
        number
        for start in range(0, len(wanted), READ_TOGETHER)
        for number in _readable(client, wanted[start : start + READ_TOGETHER], layout, timeout_ms)
    ]


def _readable(
    client: Client, numbers: list[int], layout: StateLayout, timeout_ms: int
) -> Iterator[int]:
    """The same for as many chunks as one read brings."""
    region = client.allocate(Placement.contiguous_bytes(layout, len(numbers)))
    assert region is not None
    chunk_bytes = Placement.contiguous_bytes(layout, 1)
    keys = [key_of(number) for number in numbers]
    with region:
        # Arena memory is used again and may still have the very bytes.
        region.view[:] = bytes([_UNREAD]) * len(region.view)
        destination = Placement.contiguous(region, layout)
        with client.read(layout, keys, destination, timeout_ms=timeout_ms) as read:
            report = read.wait()
        assert report.finished, f"the read of chunks {numbers} did not end"
        for place, number in enumerate(numbers):
            if report.resident[place]:
                start = place * chunk_bytes
                served = bytes(region.view[start : start + chunk_bytes])
                assert served == payload_of(number, layout), f"wrong bytes of chunk {number}"
                yield number
