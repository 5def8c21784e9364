"""The verbs of the sync client, over a socket to a store in memory."""

import threading

import numpy as np
import pytest

from kvstored_client import (
    Ack,
    Client,
    NewChunk,
    NotAdminError,
    Order,
    Placement,
    PutOutcome,
    Region,
    SliceState,
    StateLayout,
    StoreError,
)
from kvstored_client.testing import CallName, Delivery, MemoryDaemon, MemoryStore
from kvstored_contract.keys import prefix_keys
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import session_pb2, store_pb2

TOKENS = list(range(40))


def region_of(client: Client, layout: StateLayout, chunk_count: int, seed: int = 0) -> Region:
    region = client.allocate(Placement.contiguous_bytes(layout, chunk_count))
    assert region is not None
    random = np.random.default_rng(seed)
    region.view[:] = random.bytes(region.byte_count)
    return region


def slice_bytes(region: Region, layout: StateLayout, chunk: int, layer: int) -> bytes:
    start = (chunk * layout.layer_count + layer) * layout.layer_stride
    return bytes(region.view[start : start + layout.slice_bytes(layer)])


def store(client: Client, layout: StateLayout, token_ids: list[int]) -> tuple[list[bytes], Region]:
    keys = client.prefix_keys(layout, token_ids)
    region = region_of(client, layout, len(keys))
    chunks = [NewChunk(key=key, token_count=layout.chunk_tokens) for key in keys]
    report = client.put(layout, chunks, Placement.contiguous(region, layout))
    assert report.stored_count == len(keys)
    return keys, region


def test_what_was_put_is_read_again(client: Client, layout: StateLayout) -> None:
    keys, source = store(client, layout, TOKENS)
    assert len(keys) == 2
    assert client.match(layout, keys).chunk_count == 2
    with region_of(client, layout, 2, seed=1) as target:
        placement = Placement.contiguous(target, layout)
        with client.read(layout, keys, placement, order=Order.HEAD_FIRST) as read:
            report = read.wait()
            assert report.finished
            assert report.resident == (True, True)
            assert report.resident_prefix == 2
            assert report.dram_bytes == 2 * layout.chunk_bytes()
            assert read.wait_for(1)
            assert read.wait_layer(2)
            assert read.state(0, 0) is SliceState.RESIDENT
        for chunk, layer in np.ndindex(2, 3):
            assert slice_bytes(target, layout, chunk, layer) == slice_bytes(
                source, layout, chunk, layer
            )


def test_a_second_put_existed(client: Client, layout: StateLayout) -> None:
    keys, region = store(client, layout, TOKENS)
    report = client.put(
        layout,
        [NewChunk(key=keys[0], token_count=16), NewChunk(key=b"x" * 32, token_count=1)],
        Placement.contiguous(region, layout),
        ack=Ack.DURABLE,
    )
    assert [result.outcome for result in report.results] == [
        PutOutcome.EXISTED,
        PutOutcome.STORED,
    ]


def test_a_layout_is_announced_once(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    keys, _ = store(client, layout, TOKENS)
    client.match(layout, keys)
    client.match(layout, keys)
    names = [type(request).__name__ for request in memory.requests]
    assert names == ["Hello", "RegisterLayoutRequest", "PutRequest", "MatchRequest", "MatchRequest"]


def test_a_layout_that_is_taken_is_announced_once(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    assert client.register(layout)
    assert client.register(layout)
    client.match(layout, [bytes(32)])
    names = [type(request).__name__ for request in memory.requests]
    assert names == ["Hello", "RegisterLayoutRequest", "MatchRequest"]


def test_a_layout_that_is_refused_is_asked_for_once_in_each_session(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    memory.faults.refusals[CallName.REGISTER] = Reason.LAYOUT_INVALID
    assert client.register(layout) is False
    assert client.register(layout) is False
    names = [type(request).__name__ for request in memory.requests]
    assert names == ["Hello", "RegisterLayoutRequest"]
    assert client.counters == {"connects": 1}


def test_who_does_not_answer_has_not_refused(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    memory.faults.refusals[CallName.REGISTER] = Reason.LIMIT_EXCEEDED
    assert client.register(layout) is None
    assert client.counters["register_failed_LimitExceeded"] == 1
    del memory.faults.refusals[CallName.REGISTER]
    assert client.register(layout)


def test_nothing_to_do_is_no_call(client: Client, memory: MemoryStore, layout: StateLayout) -> None:
    placement = Placement(regions=(), base=0, layer_stride=0)
    assert client.put(layout, [], placement).results == ()
    assert client.match(layout, []).chunk_count == 0
    assert client.read(layout, [], placement).wait().finished
    assert client.pin(layout, [], lease_ms=1) is None
    assert client.delete([]) == 0
    assert [type(request) for request in memory.requests] == [session_pb2.Hello]


def test_keys_are_those_of_the_servers_namespace_and_the_salt(
    daemon: MemoryDaemon, layout: StateLayout
) -> None:
    for salt, namespace in (("", "default"), ("tenant", "default/tenant")):
        with Client(daemon.socket_path, arena_bytes=4096, salt=salt) as client:
            assert client.namespace == ""
            keys = client.prefix_keys(layout, TOKENS)
            assert client.namespace == namespace
            assert keys == prefix_keys(namespace=namespace, layout=layout, token_ids=TOKENS)


def test_the_epoch_is_that_of_the_live_session(client: Client) -> None:
    assert client.epoch == 0
    assert client.available()
    assert client.epoch == 1
    client.close()
    assert client.epoch == 0
    assert not client.available()


def test_the_largest_region_leaves_room_for_boards(client: Client) -> None:
    assert client.available()
    region_bytes = client.region_bytes_max
    assert client.allocate(region_bytes + 1) is None
    region = client.allocate(region_bytes)
    assert region is not None
    region.release()


def test_an_allocation_need_not_connect(client: Client, memory: MemoryStore) -> None:
    assert client.allocate(4096, connects=False) is None
    assert memory.requests == []
    assert client.available()
    region = client.allocate(4096, connects=False)
    assert region is not None
    link = client._connection.current()
    assert link is not None
    link.session.presence.end()
    assert client.allocate(4096, connects=False) is None
    assert [type(request) for request in memory.requests] == [session_pb2.Hello]


def test_a_match_with_a_lease_pins(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    keys, _ = store(client, layout, TOKENS)
    match = client.match(layout, [*keys, b"n" * 32], lease_ms=1000)
    assert match.chunk_count == 2
    assert match.lease is not None
    assert match.lease.chunk_count == 2
    assert memory.leases_in_use == 1
    assert match.lease.release()
    assert memory.leases_in_use == 0
    assert not match.lease.release()


def test_a_pin_counts_what_is_stored(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    keys, _ = store(client, layout, TOKENS)
    assert client.pin(layout, [b"n" * 32], lease_ms=1000) is None
    lease = client.pin(layout, [*keys, b"n" * 32], lease_ms=1000)
    assert lease is not None
    with lease:
        assert lease.chunk_count == 2
        assert lease.is_pinned == (True, True, False)
        next(iter(memory.sessions.values())).leases.clear()
    assert "unpin_failed" not in client.counters


def test_a_lease_of_an_older_session_is_gone(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    keys, _ = store(client, layout, TOKENS)
    lease = client.pin(layout, keys, lease_ms=1000)
    assert lease is not None
    link = client._connection.current()
    assert link is not None
    link.session.presence.end()
    assert not lease.release()
    assert not any(isinstance(request, store_pb2.UnpinRequest) for request in memory.requests)


def test_deleted_chunks_are_gone(client: Client, layout: StateLayout) -> None:
    keys, _ = store(client, layout, TOKENS)
    assert client.delete([keys[1], b"n" * 32]) == 1
    assert client.match(layout, keys).chunk_count == 1


def test_a_read_of_some_layers(client: Client, layout: StateLayout) -> None:
    keys, source = store(client, layout, TOKENS)
    with region_of(client, layout, 2) as target:
        placement = Placement.contiguous(target, layout, 2)
        with client.read(layout, keys, placement, first_layer=1) as read:
            assert read.wait().resident_prefix == 2
        stride = layout.layer_stride
        assert bytes(target.view[3 * stride : 3 * stride + 2048]) == slice_bytes(
            source, layout, 1, 2
        )


def test_waits_follow_the_board(client: Client, memory: MemoryStore, layout: StateLayout) -> None:
    keys, region = store(client, layout, TOKENS)
    memory.faults.delivery = Delivery.HELD
    read = client.read(layout, keys, Placement.contiguous(region, layout))
    held = memory.reads[0]
    assert not read.wait_for(1, timeout_s=0)
    assert not read.wait(timeout_s=0.01).finished
    waiter = threading.Thread(target=read.wait_for, args=(1,))
    waiter.start()
    for layer in range(3):
        held.deliver(1, layer)
    waiter.join(30)
    assert not waiter.is_alive()
    assert read.is_resident(1)
    assert not read.is_resident(0)
    held.deliver(0, 0)
    assert read.wait_layer(0)
    read.advance(1)
    read.cancel()
    assert (held.pointer, held.is_cancelled) == (1, True)
    assert not read.finished
    held.finish()
    assert read.wait().resident == (False, True)
    assert not read.wait_for(0)
    read.close()
    read.close()
    assert read.state(0, 1) is SliceState.SKIPPED
    assert read.report().finished


def test_close_cancels_and_waits_for_the_daemon_to_let_go(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    keys, region = store(client, layout, TOKENS)
    memory.faults.delivery = Delivery.HELD
    read = client.read(layout, keys, Placement.contiguous(region, layout))
    closer = threading.Thread(target=read.close)
    closer.start()
    held = memory.reads[0]
    while not held.is_cancelled:
        assert closer.is_alive()
    assert closer.is_alive()
    held.finish()
    closer.join(30)
    assert not closer.is_alive()
    assert read.report().resident_prefix == 0


def test_sequences(client: Client, layout: StateLayout) -> None:
    sequences = client.sequences
    keys = [bytes([index]) * 32 for index in range(4)]
    created = sequences.create("talk", layout)
    assert created is not None
    assert created.layout_id == layout.layout_id
    appended = sequences.append("talk", keys, expected_chunks=0)
    assert appended is not None
    assert appended.keys == tuple(keys)
    fork = sequences.fork("talk", "branch", keep_chunks=3)
    assert fork is not None
    assert fork.keys == tuple(keys[:3])
    front = sequences.truncate_front("branch", 1)
    assert front is not None
    assert (front.keys, front.dropped_chunks) == (tuple(keys[1:3]), 1)
    back = sequences.truncate_back("branch", 1)
    assert back is not None
    assert back.keys == (keys[1],)
    assert sequences.get("branch") == back
    assert sequences.list() == ["branch", "talk"]
    assert sequences.delete("branch")
    assert not sequences.delete("branch")
    assert sequences.get("branch") is None
    assert "sequence_get_failed" not in client.counters
    assert sequences.append("talk", keys, expected_chunks=0) is None
    assert client.counters["sequence_append_failed_SequenceConflict"] == 1


def test_admin_answers_with_messages_and_always_raises(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    keys, _ = store(client, layout, TOKENS)
    assert client.admin.stats().chunk_count == 2
    assert client.admin.list_chunks(limit=1).truncated
    assert client.admin.inspect(keys[0].hex()[:20]).chunk.key == keys[0]
    with pytest.raises(StoreError) as caught:
        client.admin.inspect(keys[0][::-1].hex())
    assert caught.value.reason is Reason.NOT_STORED
    memory.faults.refusals[CallName.STATS] = Reason.NOT_ADMIN
    with pytest.raises(NotAdminError):
        client.admin.stats()


def test_many_threads_share_one_session(
    client: Client, memory: MemoryStore, layout: StateLayout
) -> None:
    keys, _ = store(client, layout, TOKENS)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                with region_of(client, layout, 2) as target:
                    placement = Placement.contiguous(target, layout)
                    with client.read(layout, keys, placement) as read:
                        assert read.wait().resident_prefix == 2
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert len(memory.sessions) == 1
