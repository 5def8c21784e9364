"""What goes wrong when a test wants it to, what is counted, and what a death leaves."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf.message import Message

from kvstored_client import (
    AppendItem,
    AppendResult,
    ChangeKind,
    Client,
    NewChunk,
    Order,
    Placement,
    PutOutcome,
    Reason,
    SnapshotGeometry,
    StateLayout,
)
from kvstored_client.testing import (
    AsyncMemoryClient,
    CallName,
    Delivery,
    MemoryClient,
    MemoryDaemon,
    MemoryStore,
    StoredChunk,
)
from kvstored_protos.v1 import session_pb2, store_pb2
from tests.kvstored_client.testing.conftest import ARENA_BYTES, KEYS, Bench
from tests.support.descriptors import open_descriptors

README = Path(__file__).parents[3] / "README.md"


def test_a_call_is_refused(bench: Bench) -> None:
    bench.store.faults.refusals[CallName.PUT] = Reason.DRAM_FULL
    assert bench.put() == [Reason.DRAM_FULL] * 3
    assert bench.store.chunks == {}
    assert bench.client.counters["put_failed_NoRoom"] == 1
    bench.store.faults.refusals.clear()
    assert bench.put() == [PutOutcome.STORED] * 3


def test_a_call_without_an_answer_ends_the_session(bench: Bench) -> None:
    bench.store.faults.silent.add(CallName.PUT)
    bench.put()
    assert not bench.source.is_current
    assert bench.store.chunks == {}


def test_a_session_is_refused(store: MemoryStore, layout: StateLayout) -> None:
    store.faults.session_refusal = "too many sessions; close one"
    with MemoryClient(store) as client:
        assert client.match(layout, KEYS).chunk_count == 0
        assert client.counters["match_failed_SessionRefused"] == 1
        assert client.refusal == "too many sessions; close one"
        store.faults.session_refusal = ""
        assert client.available()
        assert client.refusal == ""


def test_a_delay_that_nobody_waits_for_is_a_miss(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("kvstored_client.testing.memory_link.time.sleep", slept.append)
    bench.store.faults.delays_s = {CallName.MATCH: 0.25, CallName.DELETE: 1000.0}
    bench.put()
    assert bench.client.match(bench.layout, KEYS).chunk_count == 3
    assert bench.client.delete(KEYS) == 0
    assert bench.client.counters["delete_failed_Deadline"] == 1
    assert slept[0] == 0.25
    assert slept[1] < 1000.0
    assert set(bench.store.chunks) == set(KEYS)


def test_chunks_of_a_put_are_rejected(bench: Bench) -> None:
    """As by the daemon: once one finds no room, what is new behind it finds none either."""
    rejected = {(0, 1)}
    bench.store.faults.put_rejection = lambda number, chunk: (
        Reason.STORE_FULL if (number, chunk) in rejected else None
    )
    assert bench.put() == [PutOutcome.STORED, Reason.STORE_FULL, Reason.STORE_FULL]
    assert bench.put() == [PutOutcome.EXISTED, PutOutcome.STORED, PutOutcome.STORED]


@pytest.mark.parametrize(("reason", "left"), [(Reason.DRAM_FULL, 19), (Reason.STORE_FULL, 16)])
def test_rows_of_a_step_are_dropped(bench: Bench, reason: Reason, left: int) -> None:
    client, layout = bench.client, bench.layout
    client.sequences.create("a", layout, keys=KEYS[:1])
    client.sequences.create("b", layout, keys=KEYS[:1])
    bench.store.faults.append_rejection = lambda number, sequence: (
        reason if (number, sequence) == (1, "a") else None
    )

    def append(first_a: int, first_b: int) -> list[AppendResult]:
        region = client.allocate(SnapshotGeometry(layout, 6).byte_count)
        assert region is not None
        items = [
            AppendItem(sequence=name, first_token=first, first_row=row, token_count=3)
            for name, first, row in (("a", first_a, 0), ("b", first_b, 3))
        ]
        with region:
            return list(client.append(layout, region, 6, items).results)

    assert append(16, 16) == [AppendResult(19), AppendResult(19)]
    assert append(19, 19) == [AppendResult(left, reason), AppendResult(22)]
    info = client.sequences.get("a")
    assert info is not None
    assert (info.staged_tokens, info.is_stopped) == (left, True)
    assert append(left, 22) == [AppendResult(left + 3), AppendResult(25)]


def test_a_test_hears_of_calls_before_and_after(bench: Bench) -> None:
    heard: list[tuple[str, str, int]] = []

    def hear(when: str) -> Callable[[Message], None]:
        return lambda request: heard.append((when, type(request).__name__, len(bench.store.chunks)))

    bench.store.faults.before, bench.store.faults.after = hear("before"), hear("after")
    bench.put()
    assert heard == [
        ("before", "RegisterLayoutRequest", 0),
        ("after", "RegisterLayoutRequest", 0),
        ("before", "PutRequest", 0),
        ("after", "PutRequest", 3),
    ]


def test_a_store_that_dies_before_a_call_does_not_serve_it(bench: Bench) -> None:
    bench.client.register(bench.layout)
    bench.store.faults.before = lambda request: bench.store.kill()
    bench.put()
    assert bench.store.chunks == {}
    assert not bench.client.available()


def test_what_had_arrived_is_there_when_the_store_dies_after_a_read(bench: Bench) -> None:
    bench.put()
    bench.store.faults.after = lambda request: bench.store.kill()
    read = bench.read()
    assert read.wait().resident == (True, True, True)
    assert not bench.target.is_current
    read.close()


def test_a_death_ends_reads_and_keeps_what_is_durable(bench: Bench) -> None:
    bench.put()
    bench.client.sequences.create("named", bench.layout, keys=KEYS)
    bench.client.sequences.create("own", bench.layout, ephemeral=True)
    bench.store.faults.delivery = Delivery.HELD
    read = bench.read()
    bench.store.deliver()
    bench.store.kill()
    assert read.wait().resident == (False, False, True)
    assert bench.store.reads[0].deliver() == 0
    assert bench.client.match(bench.layout, KEYS).chunk_count == 0
    bench.store.start()
    assert bench.client.match(bench.layout, KEYS).chunk_count == 3
    assert bench.client.epoch == 2
    assert list(bench.store.sequences) == [("named", 0)]
    assert not bench.source.is_current


def test_what_is_in_use_is_counted(bench: Bench) -> None:
    store, client = bench.store, bench.client
    bench.put()
    region_bytes = Placement.contiguous_bytes(bench.layout, 3)
    assert (store.regions_in_use, store.region_bytes_in_use) == (2, 2 * region_bytes)
    small = client.allocate(1)
    assert small is not None
    assert store.region_bytes_in_use == 2 * region_bytes + 4096
    small.release()
    read = bench.read()
    assert (store.boards_in_use, store.reads_in_flight) == (1, [])
    read.close()
    assert store.boards_in_use == 0
    lease = client.pin(bench.layout, KEYS, lease_ms=1000)
    found = client.match(bench.layout, KEYS, lease_ms=1000)
    assert store.leases_in_use == 2
    assert lease is not None
    lease.release()
    assert store.leases_in_use == 1
    assert found.lease is not None
    client.close()
    assert (store.leases_in_use, store.sessions) == (0, {})
    bench.source.release()
    bench.target.release()
    assert (store.regions_in_use, store.region_bytes_in_use) == (0, 0)


def test_what_was_asked_is_there(bench: Bench) -> None:
    bench.put()
    bench.read(order=Order.LAYER_FIRST, window_bytes=7).close()
    bench.read(first_layer=1).close()
    reads = bench.store.asked(store_pb2.ReadRequest)
    asked = [
        (len(read.keys), Order(read.order), read.first_layer, read.window_bytes) for read in reads
    ]
    assert asked == [(3, Order.LAYER_FIRST, 0, 7), (3, Order.TAIL_FIRST, 1, 0)]
    assert len(bench.store.asked(session_pb2.Hello)) == 1
    assert bench.store.call_counts[CallName.READ] == 2


def test_stores_share_chunks(bench: Bench, layout: StateLayout) -> None:
    bench.put()
    other = MemoryStore(chunks=bench.store.chunks)
    with MemoryClient(other) as client:
        assert client.match(layout, KEYS).chunk_count == 3
        assert bench.client.delete(KEYS[1:2]) == 1
        assert client.match(layout, KEYS).chunk_count == 1


def test_a_test_may_store_and_evict(bench: Bench) -> None:
    slices = tuple(bytes([layer]) * bench.layout.slice_bytes(layer) for layer in range(3))
    bench.store.chunks[KEYS[0]] = StoredChunk(
        layout_id=bench.layout.layout_id, slices=slices, token_count=16
    )
    assert bench.read().wait().resident == (True, False, False)
    start = bench.layout.layer_stride
    assert bytes(bench.target.view[start : start + len(slices[1])]) == slices[1]


def test_a_full_arena_has_room_for_reads_that_have_their_region(bench: Bench) -> None:
    bench.put()
    bench.store.faults.arena_is_full = True
    assert bench.client.allocate(1) is None
    assert bench.client.counters["allocate_failed_ArenaFull"] == 1
    with bench.read() as read:
        assert read.wait().resident == (True,) * len(KEYS)
    bench.store.faults.arena_is_full = False
    assert bench.client.allocate(1) is not None


@pytest.mark.parametrize(("room_bytes", "largest"), [(0, 0), (8191, 4096), (8192, 8192)])
def test_regions_have_exactly_the_room_that_a_test_gives(
    store: MemoryStore, layout: StateLayout, room_bytes: int, largest: int
) -> None:
    with MemoryClient(store, room_bytes=room_bytes) as client:
        assert client.region_bytes_max == room_bytes
        assert client.allocate(largest + 1) is None
        region = client.allocate(largest) if largest else None
        assert (region is not None) == (largest > 0)
        nowhere = Placement(regions=(), base=0, layer_stride=8192)
        with client.read(layout, KEYS[:1], nowhere) as read:
            assert read.wait().finished
        assert "read_failed" not in client.counters


async def test_the_asyncio_facade_has_no_socket_either(
    store: MemoryStore, layout: StateLayout
) -> None:
    store.faults.delivery = Delivery.HELD
    async with AsyncMemoryClient(store, arena_bytes=ARENA_BYTES, strict=True) as client:
        region = await client.allocate(Placement.contiguous_bytes(layout, 3))
        assert region is not None
        region.view[:] = bytes(number % 251 for number in range(region.byte_count))
        placement = Placement.contiguous(region, layout)
        chunks = [NewChunk(key=key, token_count=16) for key in KEYS]
        assert (await client.put(layout, chunks, placement)).stored_count == 3
        async with await client.read(layout, KEYS, placement) as read:
            store.deliver()
            assert await read.wait_for(2)
            assert not await read.wait_layer(0, timeout_s=0.0)
            read.advance(1)
            assert store.reads[0].pointers == [1]
        assert store.boards_in_use == 0
        store.faults.delivery = Delivery.ON_WAIT
        async with await client.read(layout, KEYS, placement) as read:
            assert await read.wait_for(1)
            assert (await read.wait()).resident_prefix == 3
        store.kill()
        assert not await client.available()


def test_a_daemon_comes_back_at_the_same_socket(
    store: MemoryStore, layout: StateLayout, tmp_path: Path
) -> None:
    first = MemoryDaemon(store, tmp_path)
    with Client(first.socket_path, arena_bytes=ARENA_BYTES, reconnect_interval_s=0) as client:
        bench = Bench(store, client, layout)
        bench.put()
        first.stop()
        assert not client.available()
        with MemoryDaemon(store, tmp_path):
            assert client.match(layout, KEYS).chunk_count == 3
            assert client.epoch == 2


def test_the_lines_of_the_readme_run(layout: StateLayout) -> None:
    section = README.read_text().split("`kvstored_client.testing`")[1]
    block = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert block is not None
    lines = block[1].splitlines()
    assert len(lines) == 4

    def restores(client: Client, key: bytes) -> bool:
        bench = Bench(store_of(client), client, layout)
        bench.put()
        return bench.read().wait().resident[KEYS.index(key)]

    def store_of(client: Client) -> MemoryStore:
        assert isinstance(client, MemoryClient)
        return client.store

    names = {"MemoryStore": MemoryStore, "MemoryClient": MemoryClient}
    exec("\n".join(lines), {**names, "restores": restores, "key": KEYS[1]})
    without_loss = [line for line in lines if "lost_slices" not in line]
    with pytest.raises(AssertionError):
        exec("\n".join(without_loss), {**names, "restores": restores, "key": KEYS[1]})


def test_what_a_test_leaves_open_is_closed_with_its_store() -> None:
    """Bug: the store's end of a session that nobody closed kept its eventfd for ever."""
    before = open_descriptors()
    client = MemoryClient(MemoryStore())
    assert client.available()
    assert open_descriptors() - before
    del client
    assert open_descriptors() - before == set()


def test_changes_behind_what_was_forgotten_are_lost(bench: Bench) -> None:
    client, store = bench.client, bench.store
    begin = client.changes()
    assert begin is not None
    bench.put()
    store.changes.forget()
    told = client.changes(epoch=begin.epoch, after_sequence=begin.last_sequence)
    assert told is not None
    assert told.is_lost
    del store.chunks[KEYS[0]]
    again = client.changes(epoch=told.epoch, after_sequence=told.last_sequence)
    assert again is not None
    assert (ChangeKind.REMOVED, KEYS[0]) in [(each.kind, each.key) for each in again.changes]
    store.restart()
    behind = client.changes(epoch=again.epoch, after_sequence=again.last_sequence)
    assert behind is not None
    assert behind.is_lost
    assert behind.epoch == again.epoch + 1
