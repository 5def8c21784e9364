"""What an engine tells routers of a store in memory, one question after the other."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from engine_adapters.vllm.events import change_follower
from engine_adapters.vllm.events.change_follower import (
    SILENCE_S,
    ChangeFollower,
    FollowedStore,
    Sighting,
)
from engine_adapters.vllm.identity.chunk_keys import KeyChain, RequestIdentity, rank_key
from engine_adapters.vllm.messages.chunk_events import BlockEvent, RemovedBlocks, StoredBlocks
from engine_adapters.vllm.messages.chunk_note import NoteWriter
from kvstored_client import LayerState, StateKind, StateLayout
from kvstored_client.testing import CallName, MemoryClient, MemoryStore, StoredChunk
from kvstored_contract.reasons import Reason
from tests.support.waiting import PATIENCE_S, wait_until

CHUNKS, CHUNK_TOKENS, BLOCK_TOKENS = 4, 8, 4
TOKENS = list(range(CHUNKS * CHUNK_TOKENS))
HASHES = [bytes([number + 1]) * 32 for number in range(CHUNKS * CHUNK_TOKENS // BLOCK_TOKENS)]
LAYOUT = StateLayout(
    model="m", dtype="f", layers=(LayerState(StateKind.KV, 64),), chunk_tokens=CHUNK_TOKENS
)


@dataclass
class Bench:
    """A follower that a test has ask, and what it has told so far."""

    store: MemoryStore
    now_s: float = 0.0
    hashing: bytes = b"sha256"
    told: list[BlockEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.client = MemoryClient(self.store)
        assert self.client.available()
        self.chain = self.chain_of(RequestIdentity())
        self.follower = self.made(lambda event: event)

    def chain_of(self, identity: RequestIdentity) -> KeyChain:
        chain = KeyChain(
            namespace=self.client.namespace,
            fingerprint="f",
            identity=identity,
            chunk_tokens=CHUNK_TOKENS,
        )
        chain.extend(TOKENS)
        return chain

    def made(self, convert: Callable[[BlockEvent], object]) -> ChangeFollower:
        return ChangeFollower(
            FollowedStore(client=self.client, layouts=(LAYOUT,), fingerprint="f"),
            NoteWriter(lambda: self.hashing, chunk_tokens=CHUNK_TOKENS, block_tokens=BLOCK_TOKENS),
            convert,
            interval_s=0.001,
            clock=lambda: self.now_s,
        )

    def key(self, chunk: int) -> bytes:
        return rank_key(self.chain.extend(())[chunk], LAYOUT.layout_id)

    def put(self, *chunks: int, chain: KeyChain | None = None, has_notes: bool = True) -> None:
        """Some engine stores chunks, with a note or as one that publishes no events."""
        chain = chain or self.chain
        for note in self.follower.writer.notes(
            chain, range(CHUNKS), token_ids=TOKENS, block_hashes=HASHES
        ):
            chunk = chain.extend(()).index(note.chain_key)
            if chunk in chunks:
                self.store.chunks[rank_key(note.chain_key, LAYOUT.layout_id)] = StoredChunk(
                    layout_id=LAYOUT.layout_id,
                    slices=(b"",),
                    token_count=CHUNK_TOKENS,
                    note=note.encode() if has_notes else b"",
                )

    def remove(self, chunk: int) -> None:
        del self.store.chunks[self.key(chunk)]

    def sighting(self, chunk_count: int = CHUNKS) -> Sighting:
        return Sighting(
            chain=self.chain, chunk_count=chunk_count, token_ids=TOKENS, block_hashes=HASHES
        )

    def sight(self, chunk_count: int = CHUNKS) -> None:
        self.follower.sighted(self.sighting(chunk_count))

    def save(self, chunk_count: int) -> None:
        """This engine stores chunks of which no change tells: nobody had asked."""
        self.follower.saves(self.sighting(chunk_count))
        self.put(*range(chunk_count), has_notes=False)

    def ask(self) -> list[BlockEvent]:
        while self.follower.poll():
            pass
        events = list(self.follower.take())
        self.told += events
        return events

    @property
    def known(self) -> set[bytes]:
        """Hashes of the blocks that a router believes to be there."""
        known: set[bytes] = set()
        for event in self.told:
            if isinstance(event, StoredBlocks):
                assert not event.parent_hash or event.parent_hash in known
                known.update(event.block_hashes)
            else:
                known.difference_update(event.block_hashes)
        return known


def hashes_of(*chunks: int) -> set[bytes]:
    return {each for chunk in chunks for each in HASHES[chunk * 2 : chunk * 2 + 2]}


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench(MemoryStore())
    bench.ask()
    yield bench
    bench.client.close()


def test_chunks_that_another_engine_stores_are_told(bench: Bench) -> None:
    """Bug: an engine told of what it had stored itself, and routers never sent it the rest."""
    bench.put(0, 1)
    first, second = bench.ask()
    assert first == StoredBlocks(
        block_hashes=tuple(HASHES[:2]), parent_hash=b"", token_ids=tuple(TOKENS[:CHUNK_TOKENS])
    )
    assert isinstance(second, StoredBlocks)
    assert second.parent_hash == HASHES[1]


def test_chunk_that_is_evicted_is_taken_back(bench: Bench) -> None:
    """Bug: what the daemon evicted stayed told until a load of it failed."""
    bench.put(0, 1)
    bench.ask()
    bench.remove(1)
    assert bench.ask() == [RemovedBlocks(tuple(HASHES[2:4]))]
    assert bench.known == hashes_of(0)


def test_chunks_of_an_adapter_are_told_by_whoever_has_met_it(bench: Bench) -> None:
    chain = bench.chain_of(RequestIdentity(adapter=b"weights"))
    bench.put(0, chain=chain)
    assert bench.ask() == []
    bench.follower.know(chain.root, "pirate")
    bench.store.chunks.clear()
    bench.ask()
    bench.put(0, chain=chain)
    (event,) = bench.ask()
    assert isinstance(event, StoredBlocks)
    assert event.adapter_name == "pirate"


def test_chunks_of_a_salted_request_are_not_told(bench: Bench) -> None:
    bench.put(0, chain=bench.chain_of(RequestIdentity(salt="mine")))
    assert bench.ask() == []


def test_found_chunks_are_told_if_they_are_there_still(bench: Bench) -> None:
    bench.put(0, 1, 2, has_notes=False)
    assert bench.ask() == []
    bench.sight(3)
    bench.remove(2)
    bench.ask()
    assert bench.known == hashes_of(0, 1)
    bench.sight(2)
    assert not bench.follower._sightings.found, "what routers know needs no question"


def test_chunks_that_an_engine_stored_before_its_first_question_were_never_told() -> None:
    """Bug: routers heard of them when another request had the same prefix, or not at all."""
    bench = Bench(MemoryStore())
    try:
        bench.save(2)
        bench.ask()
        assert bench.known == hashes_of(0, 1)
    finally:
        bench.client.close()


def test_chunks_stored_between_a_restart_and_the_next_question_are_told(bench: Bench) -> None:
    bench.store.kill()
    bench.store.start()
    bench.save(2)
    bench.ask()
    assert bench.known == hashes_of(0, 1)


def test_chunks_that_came_between_an_answer_and_a_restart_are_told(bench: Bench) -> None:
    """They were ordered before the answer, which had nothing of them, nor had the next one."""
    bench.follower.saves(bench.sighting(2))
    bench.ask()
    bench.put(0, 1, has_notes=False)
    bench.store.kill()
    bench.store.start()
    bench.ask()
    assert bench.known == hashes_of(0, 1)


def test_saves_are_not_asked_for_while_changes_tell_of_all(bench: Bench) -> None:
    for _ in range(3):
        bench.follower.saves(bench.sighting(2))
        bench.ask()
    bench.put(0, 1)
    bench.ask()
    assert bench.known == hashes_of(0, 1)
    assert not any(request.keys for request in bench.store.requests if hasattr(request, "keys"))


def test_saves_of_long_ago_are_forgotten(bench: Bench) -> None:
    bench.follower.saves(bench.sighting(2))
    for _ in range(2):
        bench.ask()
    assert bench.follower._sightings.heard() == []


def test_restart_takes_back_what_the_store_lost_and_nothing_else(bench: Bench) -> None:
    bench.put(0, 1, 2)
    bench.ask()
    bench.store.kill()
    bench.remove(2)
    bench.store.start()
    assert bench.ask() == [RemovedBlocks(tuple(HASHES[4:6]))]
    bench.remove(1)
    bench.ask()
    assert bench.known == hashes_of(0)


def test_what_was_missed_is_asked_for(bench: Bench) -> None:
    bench.put(0, 1)
    bench.ask()
    bench.remove(1)
    bench.store.changes.look(bench.store.chunks)
    bench.store.changes.forget()
    bench.ask()
    assert bench.known == hashes_of(0)


def test_question_without_an_answer_is_asked_again(bench: Bench) -> None:
    """What has to be verified after a loss would stay announced for ever."""
    bench.put(0, 1)
    bench.ask()
    bench.remove(1)
    bench.store.changes.look(bench.store.chunks)
    bench.store.changes.forget()
    assert bench.follower.poll(), "the keys are asked for with the next question"
    bench.store.faults.refusals[CallName.CHANGES] = Reason.INTERNAL
    assert not bench.follower.poll()
    bench.store.faults.refusals.clear()
    bench.ask()
    assert bench.known == hashes_of(0)


def test_silent_daemon_has_everything_taken_back(bench: Bench) -> None:
    bench.put(0, 1)
    bench.ask()
    bench.store.kill()
    assert bench.ask() == []
    bench.now_s = SILENCE_S
    bench.ask()
    assert bench.known == set()
    bench.store.start()
    bench.ask()
    bench.sight(2)
    bench.ask()
    assert bench.known == hashes_of(0, 1)


def test_nothing_is_told_behind_a_reset(bench: Bench) -> None:
    bench.put(0, 1)
    bench.ask()
    bench.follower.retire()
    bench.ask()
    assert bench.known == set()
    bench.put(2, 3)
    assert bench.ask() == []


def test_nothing_is_asked_before_blocks_are_hashed() -> None:
    bench = Bench(MemoryStore(), hashing=b"")
    assert bench.ask() == []
    assert bench.store.call_counts[CallName.CHANGES] == 0
    bench.hashing = b"sha256"
    bench.ask()
    bench.put(0)
    assert len(bench.ask()) == 1


def test_engine_that_takes_nothing_does_not_gather_events(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_follower, "READY_MAX", 1)
    bench.put(0)
    bench.follower.poll()
    bench.put(1)
    asked = bench.store.call_counts[CallName.CHANGES]
    bench.follower.poll()
    assert bench.store.call_counts[CallName.CHANGES] == asked
    assert len(bench.follower.take()) == 1
    assert len(bench.ask()) == 1


def test_one_step_takes_a_bounded_number_of_events(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_follower, "TAKEN_MAX", 1)
    bench.put(0, 1)
    bench.follower.poll()
    assert [len(bench.follower.take()) for _ in range(3)] == [1, 1, 0]


def test_one_question_has_a_bounded_number_of_keys(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_follower, "KEYS_PER_QUESTION_MAX", 1)
    bench.put(*range(CHUNKS), has_notes=False)
    bench.sight()
    bench.ask()
    assert bench.known == hashes_of(*range(CHUNKS))
    keys = [len(request.keys) for request in bench.store.requests if hasattr(request, "keys")]
    assert max(keys) == 1


def test_fault_takes_everything_back_and_begins_anew(bench: Bench) -> None:
    """And none of it reaches the engine."""
    seen: list[BlockEvent] = []
    fault = threading.Event()

    def convert(event: BlockEvent) -> object:
        if fault.is_set():
            fault.clear()
            raise RuntimeError("whatever")
        seen.append(event)
        return event

    follower = bench.made(convert)
    follower.start()
    try:
        wait_until(lambda: follower._place != (0, 0))
        bench.put(0)
        wait_until(lambda: len(seen) == 1)
        fault.set()
        bench.put(1)
        wait_until(lambda: RemovedBlocks(tuple(HASHES[:4])) in seen)
    finally:
        follower.close()
        follower._thread.join(PATIENCE_S)
    assert not follower._thread.is_alive()
