"""What a tier tells of its chunks in a store in memory, one question after the other."""

from collections.abc import Iterator

import pytest

from engine_adapters.vllm import tier_follower
from engine_adapters.vllm.events.change_follower import SILENCE_S
from engine_adapters.vllm.tier_follower import TierChange, TierFollower
from kvstored_client import LayerState, StateKind, StateLayout
from kvstored_client.testing import CallName, MemoryClient, MemoryStore, StoredChunk
from kvstored_contract.reasons import Reason
from tests.support.waiting import wait_until

LAYOUT = StateLayout(
    model="m", dtype="bytes", layers=(LayerState(StateKind.KV, 64),), chunk_tokens=8
)
CHUNK = StoredChunk(layout_id=LAYOUT.layout_id, slices=(b"",), token_count=8)


def own(number: int) -> bytes:
    """vLLM's key of a chunk."""
    return b"chunk %d" % number


def key_of(offload_key: bytes) -> bytes:
    return offload_key.rjust(32)


class Bench:
    """A follower that a test has ask, and what vLLM believes of it."""

    def __init__(self, *, chunks_max: int = 100) -> None:
        self.now_s = 0.0
        self.store = MemoryStore()
        self.client = MemoryClient(self.store)
        self.follower = TierFollower(
            self.client,
            key_of,
            interval_s=0.001,
            chunks_max=chunks_max,
            clock=lambda: self.now_s,
        )
        self.ask()

    def put(self, *numbers: int) -> None:
        for number in numbers:
            self.store.chunks[key_of(own(number))] = CHUNK
        self.follower.stored([own(number) for number in numbers])

    def remove(self, number: int) -> None:
        del self.store.chunks[key_of(own(number))]

    def ask(self) -> list[TierChange]:
        while self.follower.poll():
            pass
        return list(self.follower.take())


def stored(*numbers: int) -> TierChange:
    return TierChange(tuple(map(own, numbers)), is_removed=False)


def removed(*numbers: int) -> TierChange:
    return TierChange(tuple(map(own, numbers)), is_removed=True)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.client.close()


def test_chunks_that_were_evicted_stayed_told_for_ever(bench: Bench) -> None:
    """Bug: the tier told of what was stored, and never that it is gone."""
    bench.put(1, 2, 3)
    assert bench.ask() == [stored(1, 2, 3)]
    bench.remove(1)
    bench.remove(3)
    assert bench.ask() == [removed(1, 3)]
    assert bench.ask() == []


def test_what_is_gone_before_it_could_be_told_is_not_told(bench: Bench) -> None:
    bench.put(1, 2)
    bench.remove(1)
    assert bench.ask() == [stored(2)]


def test_what_is_put_again_is_told_once_while_it_is_there(bench: Bench) -> None:
    bench.put(1)
    assert bench.ask() == [stored(1)]
    bench.put(1)
    assert bench.ask() == []
    bench.remove(1)
    assert bench.ask() == [removed(1)]
    bench.put(1)
    assert bench.ask() == [stored(1)]


def test_a_daemon_that_was_started_again_is_asked_for_everything(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier_follower, "KEYS_PER_QUESTION_MAX", 2)
    bench.put(1, 2, 3, 4, 5)
    assert bench.ask() == [stored(1, 2), stored(3, 4), stored(5)]
    bench.store.kill()
    bench.store.start()
    bench.remove(2)
    bench.remove(5)
    wait_until(bench.client.available)
    assert bench.ask() == [removed(2), removed(5)]


def test_a_silent_daemon_has_nothing_until_it_answers(bench: Bench) -> None:
    bench.put(1, 2)
    bench.ask()
    bench.store.faults.refusals[CallName.CHANGES] = Reason.INTERNAL
    bench.put(3)
    bench.now_s += SILENCE_S * 0.9
    assert bench.ask() == []
    bench.now_s += SILENCE_S
    assert bench.ask() == [removed(1, 2)]
    bench.store.faults.refusals.clear()
    bench.remove(1)
    (change,) = bench.ask()
    assert not change.is_removed
    assert set(change.offload_keys) == {own(2), own(3)}


def test_the_oldest_chunks_are_taken_back_when_there_are_too_many() -> None:
    bench = Bench(chunks_max=3)
    bench.put(1, 2)
    bench.ask()
    bench.put(3, 4)
    assert bench.ask() == [stored(3, 4), removed(1)]
    bench.client.close()


def test_the_thread_goes_on_after_a_fault(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench.put(1)
    bench.ask()
    changes = bench.client.changes
    calls = 0

    def fail_twice(**question: object) -> object:
        nonlocal calls
        calls += 1
        if calls <= 2:
            raise ZeroDivisionError
        return changes(**question)  # type: ignore[arg-type]  # whatever it is given

    monkeypatch.setattr(bench.client, "changes", fail_twice)
    bench.follower.start()
    told: list[TierChange] = []

    def is_told_again() -> bool:
        told.extend(bench.follower.take())
        return len(told) >= 2

    wait_until(is_told_again)
    assert told == [removed(1), stored(1)]
    bench.follower.close()
    bench.follower._thread.join()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
