"""A thread for stored chunks: what it works on, turns away and passes over."""

import threading
from collections.abc import Iterator

import pytest

from kvstored.format.geometry import ChunkGeometry
from kvstored.format.identity import ChunkId
from kvstored.store.read.chunk_source import StoredChunk
from kvstored.tiers.chunks.chunk_thread import ChunkThread
from tests.support.stores import LAYOUT, NAMESPACE, StoreUnderTest, key, put_durable
from tests.support.waiting import PATIENCE_S, wait_until


class Work:
    """Notes chunks and their pins; waits for ``gate``, and then fails for those in ``bad``."""

    def __init__(self, opened: StoreUnderTest) -> None:
        self.store = opened.store._store
        self.gate = threading.Semaphore(0)
        self.bad: set[ChunkId] = set()
        self.seen: list[tuple[ChunkId, bool]] = []
        self.thread = ChunkThread(self, store=self.store, name="kvstored-test", waiting_max=1)

    def __call__(self, source: StoredChunk) -> None:
        self.seen.append((source.chunk, self.store.pins.is_pinned(source.chunk)))
        assert self.gate.acquire(timeout=PATIENCE_S)
        if source.chunk in self.bad:
            raise ValueError("a failure that the test wants")

    def source(self, number: int) -> StoredChunk:
        chunk = ChunkId(NAMESPACE, key(number))
        (record,) = self.store.find([chunk])
        assert record is not None
        return self.store.source(chunk, record, ChunkGeometry.of(LAYOUT, LAYOUT.chunk_tokens))


@pytest.fixture
def work(opened: StoreUnderTest) -> Iterator[Work]:
    opened.fill(3)
    put_durable(opened, [0, 1, 2])
    work = Work(opened)
    yield work
    for _ in range(4):
        work.gate.release()
    work.thread.close()


def test_chunks_are_pinned_while_they_are_worked_on(work: Work) -> None:
    source = work.source(0)
    assert work.thread.offer(source)
    wait_until(lambda: bool(work.seen))
    assert work.seen == [(source.chunk, True)]
    work.gate.release()
    wait_until(lambda: not work.store.pins.count)


def test_more_than_may_wait_are_turned_away(work: Work) -> None:
    sources = [work.source(number) for number in range(3)]
    assert work.thread.offer(sources[0])
    wait_until(lambda: bool(work.seen))
    assert work.thread.offer(sources[1])
    assert not work.thread.offer(sources[2])


def test_a_chunk_that_is_gone_is_passed_over(work: Work) -> None:
    gone, kept = work.source(0), work.source(1)
    assert work.store.delete(gone.chunk).result(PATIENCE_S)
    assert work.thread.offer(gone)
    wait_until(lambda: work.thread.offer(kept))
    wait_until(lambda: bool(work.seen))
    assert [chunk for chunk, _ in work.seen] == [kept.chunk]


def test_a_failure_ends_neither_the_thread_nor_a_pin_too_few(
    work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = work.source(0), work.source(1)
    work.bad.add(first.chunk)
    work.gate.release()
    assert work.thread.offer(first)
    wait_until(lambda: bool(work.seen))
    assert work.thread.offer(second)
    wait_until(lambda: len(work.seen) == 2)
    assert not work.store.pins.is_pinned(first.chunk)
    assert "kvstored-test: a chunk is given up" in caplog.text


def test_a_close_forgets_what_waits(work: Work) -> None:
    assert work.thread.offer(work.source(0))
    wait_until(lambda: bool(work.seen))
    assert work.thread.offer(work.source(1))
    work.thread._is_closing = True
    work.gate.release()
    work.thread.close()
    assert len(work.seen) == 1
