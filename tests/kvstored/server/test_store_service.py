"""Chunks over gRPC: put, match, pin, read, delete."""

import os
import select
from typing import Any

import grpc
import numpy as np
import pytest

from kvstored.server.store_servicer import INLINE_CHUNKS_MAX
from kvstored_contract.board import Board, BoardWord, SliceState
from kvstored_contract.reasons import Reason
from kvstored_contract.snapshot import SnapshotGeometry
from kvstored_protos.v1 import store_pb2
from tests.kvstored.server.caller import (
    KEYS,
    LAYOUT,
    Caller,
    calling,
    match,
    reason_of,
    told_reason,
)
from tests.kvstored.server.served import ARENA_BYTES, Served
from tests.support.waiting import until


async def test_put(caller: Caller) -> None:
    first = await caller.put(KEYS[:2])
    assert [result.outcome for result in first.results] == [1, 1]
    second = await caller.put(KEYS[:3], ack=store_pb2.Ack.ACK_DURABLE)
    assert [result.outcome for result in second.results] == [2, 2, 1]


async def test_put_that_never_becomes_durable(caller: Caller) -> None:
    caller.served.store.durable = Reason.DEVICE_FAILED
    staged = await caller.put(KEYS[:1])
    assert staged.results[0].outcome == store_pb2.PUT_OUTCOME_STORED
    durable = await caller.put(KEYS[1:2], ack=store_pb2.Ack.ACK_DURABLE)
    assert durable.results[0].outcome == store_pb2.PUT_OUTCOME_REJECTED
    assert Reason(durable.results[0].reason) is Reason.DEVICE_FAILED


async def test_bad_puts(caller: Caller) -> None:
    assert await reason_of(caller.put([])) is Reason.FIELD_INVALID
    assert await reason_of(caller.put(KEYS, ack=0)) is Reason.FIELD_INVALID
    assert await reason_of(caller.put(KEYS, stride=ARENA_BYTES)) is Reason.ARENA_RANGE
    unknown = caller.store.Put(
        store_pb2.PutRequest(layout_id=b"x", ack=store_pb2.Ack.ACK_STAGED),
        metadata=caller.peer.metadata,
    )
    assert await reason_of(unknown) is Reason.LAYOUT_UNKNOWN


async def test_match(caller: Caller) -> None:
    await caller.put(KEYS[:2])
    assert (await match(caller, KEYS)).matched_chunks == 2
    assert (await match(caller, [])).matched_chunks == 0
    assert (await match(caller, KEYS[3:], lease_ms=10)).lease_id == 0
    many = [*KEYS[:2], *[b"z" * 32] * INLINE_CHUNKS_MAX]
    assert (await match(caller, many)).matched_chunks == 2
    assert await reason_of(match(caller, KEYS, lease_ms=2**31)) is Reason.FIELD_INVALID


async def test_match_with_lease(caller: Caller) -> None:
    await caller.put(KEYS[:3])
    reply = await match(caller, KEYS, lease_ms=60_000)
    store = caller.served.store
    assert reply.matched_chunks == 3
    assert sum(store.pins.values()) == 3
    unpin = store_pb2.UnpinRequest(lease_id=reply.lease_id)
    await caller.store.Unpin(unpin, metadata=caller.peer.metadata)
    assert sum(store.pins.values()) == 0
    again = caller.store.Unpin(unpin, metadata=caller.peer.metadata)
    assert await reason_of(again) is Reason.LEASE_UNKNOWN


async def test_a_chunk_evicted_before_its_pin_ends_the_match(caller: Caller) -> None:
    await caller.put(KEYS)
    caller.served.store.evicted_before_pin = {KEYS[2]}
    assert (await match(caller, KEYS, lease_ms=1000)).matched_chunks == 2


async def test_pin(caller: Caller) -> None:
    await caller.put(KEYS[1:3])
    request = store_pb2.PinRequest(layout_id=LAYOUT.layout_id, keys=KEYS, lease_ms=60_000)
    reply = await caller.store.Pin(request, metadata=caller.peer.metadata)
    assert reply.pinned_chunks == 2
    assert list(reply.is_pinned) == [key in KEYS[1:3] for key in KEYS]
    assert reply.lease_id
    request.lease_ms = 0
    call = caller.store.Pin(request, metadata=caller.peer.metadata)
    assert await reason_of(call) is Reason.FIELD_INVALID


async def test_leases_expire(caller: Caller) -> None:
    await caller.put(KEYS)
    await match(caller, KEYS, lease_ms=1)
    await until(lambda: not sum(caller.served.store.pins.values()))


@pytest.mark.parametrize("chunk_count", [2, INLINE_CHUNKS_MAX + 1])
async def test_read(served: Served, chunk_count: int) -> None:
    async with calling(served, 4 * ARENA_BYTES) as caller:
        keys = [number.to_bytes(32, "big") for number in range(chunk_count)]
        board_offset = 2 * ARENA_BYTES
        reply = await caller.store.Read(
            caller.read_request(keys, board_offset=board_offset), metadata=caller.peer.metadata
        )
        assert (reply.dram_chunks, reply.nvme_chunks) == (1, 2)
        served.store.streams[0].finish()
        view = memoryview(caller.peer.arena)[board_offset:]
        board = Board(view, chunk_count=chunk_count, layer_count=2)
        assert board.words[BoardWord.FINISHED] == 1
        assert np.all(board.states == SliceState.RESIDENT)
        assert select.select([caller.peer.descriptors[1]], [], [])[0]
        assert os.eventfd_read(caller.peer.descriptors[1]) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"order": 0}, Reason.FIELD_INVALID),
        ({"order": 9}, Reason.FIELD_INVALID),
        ({"layer_count": 0}, Reason.FIELD_INVALID),
        ({"first_layer": 1}, Reason.FIELD_INVALID),
        ({"board_offset": 4}, Reason.ARENA_RANGE),
        ({"board_offset": ARENA_BYTES - 64}, Reason.ARENA_RANGE),
        ({"deadline_ms": 0}, Reason.FIELD_INVALID),
        ({"deadline_ms": 2**31}, Reason.FIELD_INVALID),
    ],
)
async def test_bad_reads(caller: Caller, changes: dict[str, int], reason: Reason) -> None:
    call = caller.store.Read(caller.read_request(KEYS, **changes), metadata=caller.peer.metadata)
    assert await reason_of(call) is reason
    assert caller.served.store.streams == []


async def test_a_destination_outside_the_arena(caller: Caller) -> None:
    request = caller.read_request(KEYS)
    request.destination.base = ARENA_BYTES - 64
    call = caller.store.Read(request, metadata=caller.peer.metadata)
    assert await reason_of(call) is Reason.ARENA_RANGE


async def test_delete(caller: Caller) -> None:
    await caller.put(KEYS[:2])
    reply = await caller.store.Delete(
        store_pb2.DeleteRequest(keys=KEYS), metadata=caller.peer.metadata
    )
    assert reply.deleted_chunks == 2
    assert (await match(caller, KEYS)).matched_chunks == 0


async def test_a_fault_of_the_daemon_is_told_without_its_cause(caller: Caller) -> None:
    caller.served.store.failure = RuntimeError("secret")
    with pytest.raises(grpc.aio.AioRpcError) as info:
        await match(caller, KEYS)
    assert info.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(info.value.details())
    assert told_reason(info.value) == "INTERNAL"


async def test_append(caller: Caller) -> None:
    caller.peer.arena[128:136] = b"snapshot"
    request = store_pb2.AppendRequest(
        layout_id=LAYOUT.layout_id,
        snapshot_offset=128,
        row_count=3,
        items=[
            store_pb2.AppendItem(sequence="a", first_token=3, token_count=1, keys=KEYS[:1]),
            store_pb2.AppendItem(sequence="b", first_row=1, token_count=2),
        ],
    )
    reply = await caller.store.Append(request, metadata=caller.peer.metadata)
    assert [(result.length_tokens, result.reason) for result in reply.results] == [(4, 0), (2, 0)]
    (append,) = caller.served.store.appends
    assert append.session_id == caller.peer.welcome.session_id
    assert bytes(append.source[:8]) == b"snapshot"
    assert len(append.source) == SnapshotGeometry(LAYOUT, 3).byte_count
    assert [(item.name, item.first_row, item.keys) for item in append.items] == [
        ("a", 0, (KEYS[0],)),
        ("b", 1, ()),
    ]
    caller.served.store.append_reason = Reason.DRAM_FULL
    full = await caller.store.Append(request, metadata=caller.peer.metadata)
    assert {Reason(result.reason) for result in full.results} == {Reason.DRAM_FULL}


async def test_the_store_hears_of_the_end_of_a_session(served: Served) -> None:
    async with calling(served) as caller:
        session_id = caller.peer.welcome.session_id
        assert served.store.ended_sessions == []
    await until(lambda: served.store.ended_sessions == [session_id])


async def changes(caller: Caller, **fields: Any) -> store_pb2.ChangesReply:
    return await caller.store.Changes(
        store_pb2.ChangesRequest(**fields), metadata=caller.peer.metadata
    )


async def test_changes(caller: Caller) -> None:
    await caller.put(KEYS[:2])
    first = await changes(caller, keys=[KEYS[0], KEYS[3]])
    assert [change.key for change in first.changes] == KEYS[:2]
    assert {change.kind for change in first.changes} == {store_pb2.CHANGE_KIND_STORED}
    assert first.lost
    assert list(first.is_stored) == [True, False]
    again = await changes(caller, epoch=first.epoch, after_sequence=first.last_sequence)
    assert not again.changes
    assert not again.lost
    assert await reason_of(changes(caller, keys=[b"short"])) is Reason.FIELD_INVALID
