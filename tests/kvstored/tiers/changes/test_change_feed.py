"""What the store tells of chunks that came and went."""

from pathlib import Path

import pytest

from kvstored.format.identity import ChunkId, namespace_id
from kvstored.io.device import DeviceError
from kvstored.tiers.changes.change_feed import ChangeFeed
from kvstored.tiers.changes.change_log import ChangeKind
from kvstored.tiers.chunks.frame import Frame, FrameState
from kvstored.tiers.chunks.requests import NewChunk, PutRequest
from kvstored_contract.reasons import Reason
from tests.support.stores import (
    LAYOUT,
    MIB,
    NAMESPACE,
    StoreUnderTest,
    forget_dram,
    key,
    open_store,
    put_durable,
)
from tests.support.waiting import wait_until

OTHER = namespace_id("somebody else")
STORED, REMOVED = ChangeKind.STORED, ChangeKind.REMOVED


class Follower:
    """Reads a namespace's changes from now on."""

    def __init__(self, opened: StoreUnderTest, namespace: bytes = NAMESPACE) -> None:
        self._opened = opened
        self._namespace = namespace
        self._place = (0, 0)
        self.is_lost = False
        self.take()

    def take(self) -> list[tuple[ChangeKind, bytes]]:
        epoch, after = self._place
        answer = self._opened.store.changes(self._namespace, (), epoch=epoch, after_sequence=after)
        self._place = (answer.epoch, answer.span.last_sequence)
        self.is_lost = answer.span.is_lost
        return [(change.kind, change.key) for change in answer.span.changes]

    def stored(self, number: int) -> bool:
        answer = self._opened.store.changes(
            self._namespace, [key(number)], epoch=0, after_sequence=0
        )
        return answer.are_stored[0]


@pytest.fixture
def follower(opened: StoreUnderTest) -> Follower:
    return Follower(opened)


def test_chunk_that_is_put_is_told_once(opened: StoreUnderTest, follower: Follower) -> None:
    assert not follower.stored(1)
    opened.fill(1)
    put_durable(opened, [1])
    put_durable(opened, [1])
    assert follower.take() == [(STORED, key(1))]
    assert follower.stored(1)
    assert follower.take() == []
    assert not follower.is_lost


def test_chunk_is_told_before_it_can_be_read(
    opened: StoreUnderTest, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Announced after that, it could be evicted first, and would count as stored for ever."""
    told: list[tuple[ChangeKind, bytes]] = []
    dram = opened.store._dram
    publish = dram.publish

    def looked_first(frame: Frame, state: FrameState) -> None:
        told.extend(follower.take())
        publish(frame, state)

    monkeypatch.setattr(dram, "publish", looked_first)
    opened.fill(1)
    put_durable(opened, [1])
    assert told == [(STORED, key(1))]


def test_note_of_a_put_is_handed_on(opened: StoreUnderTest, follower: Follower) -> None:
    opened.fill(1)
    opened.store.put_path.put(
        PutRequest(
            namespace_id=NAMESPACE,
            layout=LAYOUT,
            chunks=(NewChunk(key(1), b"", LAYOUT.chunk_tokens, 0, note=b"what it is"),),
            source=opened.arena,
            placement=opened.placement(),
            deadline=0,
        )
    )
    answer = opened.store.changes(NAMESPACE, (), epoch=1, after_sequence=0)
    assert [change.note for change in answer.span.changes] == [b"what it is"]


def test_chunk_is_gone_when_neither_tier_has_it(opened: StoreUnderTest, follower: Follower) -> None:
    opened.fill(2)
    put_durable(opened, [1, 2])
    follower.take()
    forget_dram(opened, [1])
    assert follower.take() == []
    assert opened.store._store.delete(ChunkId(NAMESPACE, key(1))).result()
    assert follower.take() == [(REMOVED, key(1))]
    assert opened.store._store.delete(ChunkId(NAMESPACE, key(2))).result()
    assert follower.take() == []
    assert follower.stored(2)
    forget_dram(opened, [2])
    assert follower.take() == [(REMOVED, key(2))]
    assert not follower.stored(2)


def test_chunk_that_is_deleted_is_told(opened: StoreUnderTest, follower: Follower) -> None:
    opened.fill(1)
    put_durable(opened, [1])
    opened.store.delete(NAMESPACE, [key(1)]).result()
    assert follower.take()[-1] == (REMOVED, key(1))


def test_chunks_that_are_evicted_from_the_devices_are_told(tmp_path: Path) -> None:
    with open_store(tmp_path, device_count=1, slabs_per_device=1, dram_bytes=MIB) as opened:
        follower = Follower(opened)
        opened.fill(1)
        told = []
        for number in range(200):
            put_durable(opened, [number])
            told += follower.take()
        there = {k for kind, k in told if kind is STORED}
        for kind, k in told:
            (there.add if kind is STORED else there.discard)(k)
        assert (REMOVED, key(0)) in told
        assert there == {key(number) for number in range(200) if follower.stored(number)}


def test_quarantined_chunk_is_told(opened: StoreUnderTest, follower: Follower) -> None:
    opened.fill(1)
    put_durable(opened, [1])
    forget_dram(opened, [1])
    chunk = ChunkId(NAMESPACE, key(1))
    (record,) = opened.store._store.find([chunk])
    assert record is not None
    opened.store._store.quarantine(chunk, record)
    wait_until(lambda: follower.take() == [(REMOVED, key(1))])


def test_chunk_that_could_not_be_written_is_told(
    opened: StoreUnderTest, follower: Follower
) -> None:
    opened.fill(1)
    dram = opened.store._dram
    put_durable(opened, [1])
    opened.store._store.delete(ChunkId(NAMESPACE, key(1))).result()
    follower.take()
    frame = dram._frames[ChunkId(NAMESPACE, key(1))]
    frame.durable = type(frame.durable)()
    dram.settle(frame, Reason.DEVICE_FAILED)
    assert follower.take() == [(REMOVED, key(1))]


def test_namespace_hears_of_its_own_chunks_only(opened: StoreUnderTest) -> None:
    ours, theirs = Follower(opened), Follower(opened, OTHER)
    opened.fill(1)
    put_durable(opened, [1])
    assert theirs.take() == []
    assert not theirs.stored(1)
    assert len(ours.take()) == 1


def test_failed_device_has_everybody_start_over(opened: StoreUnderTest, follower: Follower) -> None:
    """Its chunks are misses at once, and nobody can name them one by one."""
    error = DeviceError("device0", "read", "gone", sticky=True)
    opened.store._store.failures.report(0, error)
    assert follower.take() == []
    assert follower.is_lost
    opened.store._store.failures.report(0, error)
    follower.take()
    assert not follower.is_lost


def test_nobody_pays_for_a_namespace_that_nobody_follows() -> None:
    feed = ChangeFeed()
    chunk = ChunkId(NAMESPACE, key(1))

    def never(_: ChunkId) -> bool:
        raise AssertionError("it was looked for")

    feed.stored(chunk, b"note")
    feed.left(chunk, never)
    assert feed.after(NAMESPACE, None).changes == ()
