"""A client of the SDK whose daemon is sound and whose devices take nothing."""

import asyncio
from collections.abc import Iterator

import pytest

from kvstored_client import (
    Ack,
    Client,
    NewChunk,
    Placement,
    PutOutcome,
    PutReport,
    Reason,
    SequenceInfo,
)
from tests.kvstored.server.caller import KEYS, LAYOUT
from tests.kvstored.server.served import ARENA_BYTES, Served

SOON_MS = 50


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.options.socket, arena_bytes=2 * ARENA_BYTES, strict=True) as client:
        yield client


def durable_put(client: Client, key: bytes) -> PutReport:
    region = client.allocate(ARENA_BYTES // 2)
    assert region is not None
    with region:
        chunk = NewChunk(key=key, token_count=LAYOUT.chunk_tokens)
        return client.put(
            LAYOUT,
            [chunk],
            Placement.contiguous(region, LAYOUT),
            ack=Ack.DURABLE,
            timeout_ms=SOON_MS,
        )


async def test_a_durable_put_that_devices_do_not_take_in_time_ends_no_session(
    served: Served, client: Client
) -> None:
    """Bug: the daemon waited without end; the client gave up 10 s later, and its session too."""
    served.store.durable = None
    region = await asyncio.to_thread(client.allocate, 4096)
    report = await asyncio.to_thread(durable_put, client, KEYS[0])
    assert [(one.outcome, one.reason) for one in report.results] == [
        (PutOutcome.STAGED, Reason.DEADLINE)
    ]
    assert (report.staged_count, report.stored_count, report.rejected_count) == (1, 0, 0)
    assert region is not None
    assert region.is_current
    served.store.durable = Reason.UNSPECIFIED
    again = await asyncio.to_thread(durable_put, client, KEYS[0])
    assert again.existed_count == 1
    assert client.counters["connects"] == 1


async def test_a_flush_that_devices_do_not_take_in_time_says_what_is_durable(
    served: Served, client: Client
) -> None:
    """Bug: it was waited for without end, and the client heard nothing of what was durable."""

    def flushed() -> SequenceInfo | None:
        client.sequences.create("s", LAYOUT, keys=KEYS[:2])
        client.sequences.truncate_tokens("s", 1)
        return client.sequences.flush(
            "s", KEYS[3], expected_tokens=2 * LAYOUT.chunk_tokens - 1, timeout_ms=SOON_MS
        )

    served.store.sequences.is_late = True
    late = await asyncio.to_thread(flushed)
    assert late is not None
    assert late.reason is Reason.DEADLINE
    assert (late.durable_tokens, late.staged_tokens) == (4, 7)
    served.store.sequences.is_late = False
    done = await asyncio.to_thread(
        lambda: client.sequences.flush("s", KEYS[3], expected_tokens=7, timeout_ms=0)
    )
    assert done is not None
    assert (done.reason, done.durable_tokens) == (Reason.UNSPECIFIED, 7)
