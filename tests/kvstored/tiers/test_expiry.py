"""Chunks of a whole store that nobody has used for too long, by a clock that the test moves."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstored.format.identity import ChunkId, namespace_id
from kvstored.tiers.changes.change_log import ChangeKind
from kvstored.tiers.chunks import expirer, frame_ages
from kvstored.tiers.namespaces import NamespaceLimits
from kvstored_contract.board import SliceState
from kvstored_contract.reasons import Reason
from tests.support.stores import (
    BASE,
    NAMESPACE,
    StoreUnderTest,
    forget_dram,
    key,
    new_board,
    open_store,
    put_durable,
)
from tests.support.waiting import PATIENCE_S, SOON_S, wait_until

TTL_S = 0.4
"""Of chunks. Looks follow each other by a share of it, on the clock of the machine."""
MARGIN_S = 3 * TTL_S
"""Long enough for anything to expire."""
USES = 6
USED_AFTER_S = MARGIN_S / USES
STEP_S = TTL_S / 4
"""After it a look counts as one."""


class Clock:
    """What the parts that let chunks expire take for the time."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class CountedClock(Clock):
    """The same for the expirer, which asks once for each look."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._asked_count = 0

    def monotonic(self) -> float:
        self._asked_count += 1
        return self._clock.monotonic()

    def pass_time(self, duration_s: float) -> None:
        """Moves the clock, with one look on the way: by that it is known what was used before."""
        for step_s in (STEP_S, duration_s - STEP_S):
            self._clock.now_s += step_s
            self._wait_for_a_look()

    def _wait_for_a_look(self) -> None:
        """Until one has ended that began after this call."""
        before_count = self._asked_count
        wait_until(lambda: self._asked_count >= before_count + 2, within_s=SOON_S)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> CountedClock:
    """Nothing expires but by this clock."""
    clock = Clock()
    counted = CountedClock(clock)
    monkeypatch.setattr(frame_ages, "time", clock)
    monkeypatch.setattr(expirer, "time", counted)
    return counted


@pytest.fixture
def mortal(tmp_path: Path, clock: CountedClock) -> Iterator[StoreUnderTest]:
    with open_store(tmp_path, ttl_s=TTL_S) as opened:
        opened.fill(4)
        yield opened


def is_found(opened: StoreUnderTest, number: int, namespace: bytes = NAMESPACE) -> bool:
    return opened.store.match(namespace, [key(number)]) == 1


def is_read(opened: StoreUnderTest, number: int) -> bool:
    board = new_board(1)
    assert opened.read([number], base=BASE, board=board).wait(PATIENCE_S)
    return bool((board.states[0] == SliceState.RESIDENT).all())


def expired(opened: StoreUnderTest) -> int:
    return opened.stats().counters.get("expired_chunks", 0)


def removed(opened: StoreUnderTest) -> list[bytes]:
    answer = opened.store.changes(NAMESPACE, [], epoch=1, after_sequence=0)
    return [one.key for one in answer.span.changes if one.kind is ChangeKind.REMOVED]


def test_what_nobody_uses_is_freed_everywhere_and_followers_hear_of_it(
    mortal: StoreUnderTest, clock: CountedClock
) -> None:
    removed(mortal)
    put_durable(mortal, [0, 1])
    assert is_read(mortal, 0)
    clock.pass_time(MARGIN_S)
    wait_until(lambda: expired(mortal) == 2)
    assert not is_found(mortal, 0)
    assert not is_read(mortal, 1)
    wait_until(lambda: mortal.stats().dram_used_bytes == 0)
    assert sum(device.used_bytes for device in mortal.stats().devices) == 0
    assert sorted(removed(mortal)) == [key(0), key(1)]


@pytest.mark.parametrize("is_in_dram", [True, False])
def test_uses_keep_a_chunk(mortal: StoreUnderTest, clock: CountedClock, is_in_dram: bool) -> None:
    put_durable(mortal, [0, 1])
    for _ in range(USES):
        clock.pass_time(USED_AFTER_S)
        if not is_in_dram:
            forget_dram(mortal, [0])
        assert is_read(mortal, 0)
    assert not is_found(mortal, 1)
    assert expired(mortal) == 1


def test_what_somebody_has_pinned_does_not_expire(
    mortal: StoreUnderTest, clock: CountedClock
) -> None:
    put_durable(mortal, [0, 1])
    pinned = mortal.store.pin(NAMESPACE, [key(0)])
    for _ in range(2):
        clock.pass_time(MARGIN_S)
        wait_until(lambda: expired(mortal) == 1)
    assert is_found(mortal, 0)
    assert is_read(mortal, 0)
    mortal.store.unpin(pinned)
    clock.pass_time(MARGIN_S)
    wait_until(lambda: expired(mortal) == 2)
    assert not is_found(mortal, 0)


def test_an_expired_chunk_is_a_miss_before_it_is_freed(
    mortal: StoreUnderTest, clock: CountedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mortal.store._store, "evict", lambda _: [])
    monkeypatch.setattr(mortal.store._dram.ages, "expire", lambda: 0)
    put_durable(mortal, [0, 1])
    forget_dram(mortal, [1])
    assert is_found(mortal, 0)
    assert is_found(mortal, 1)
    clock.pass_time(MARGIN_S)
    for number in (0, 1):
        assert not is_found(mortal, number)
        assert not is_read(mortal, number)
        assert mortal.store.pin(NAMESPACE, [key(number)]) == ()
        chunk = ChunkId(NAMESPACE, key(number))
        assert mortal.store.read_path.are_visible([chunk]) == [True]
    answer = mortal.store.changes(NAMESPACE, [key(0), key(1)], epoch=1, after_sequence=0)
    assert answer.are_stored == (False, False)


def test_what_only_dram_has_expires_too(mortal: StoreUnderTest, clock: CountedClock) -> None:
    removed(mortal)
    put_durable(mortal, [0])
    (eviction,) = mortal.store._store.evict([ChunkId(NAMESPACE, key(0))])
    assert eviction.result()
    assert is_found(mortal, 0)
    clock.pass_time(MARGIN_S)
    assert not is_found(mortal, 0)
    wait_until(lambda: mortal.stats().dram_used_bytes == 0)
    assert removed(mortal) == [key(0)]


def test_what_leaves_the_devices_leaves_dram(
    mortal: StoreUnderTest, clock: CountedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However lately it was brought there."""
    monkeypatch.setattr(mortal.store._dram.ages, "expire", lambda: 0)
    put_durable(mortal, [0])
    clock.pass_time(MARGIN_S)
    wait_until(lambda: expired(mortal) == 1)
    wait_until(lambda: mortal.stats().dram_used_bytes == 0)


def test_uses_keep_what_only_dram_has(mortal: StoreUnderTest, clock: CountedClock) -> None:
    put_durable(mortal, [0])
    (eviction,) = mortal.store._store.evict([ChunkId(NAMESPACE, key(0))])
    assert eviction.result()
    for _ in range(USES):
        clock.pass_time(USED_AFTER_S)
        assert is_read(mortal, 0)


def test_a_chunk_can_be_stored_again_after_it_has_expired(
    mortal: StoreUnderTest, clock: CountedClock
) -> None:
    put_durable(mortal, [0])
    clock.pass_time(MARGIN_S)
    wait_until(lambda: expired(mortal) == 1)
    put_durable(mortal, [0])
    assert is_found(mortal, 0)
    assert is_read(mortal, 0)


@pytest.mark.parametrize("module", [expirer, frame_ages])
def test_many_go_in_slices(
    tmp_path: Path, clock: CountedClock, monkeypatch: pytest.MonkeyPatch, module: object
) -> None:
    monkeypatch.setattr(module, "EXPIRED_AT_ONCE", 3)
    with open_store(tmp_path, ttl_s=TTL_S) as opened:
        slices: list[int] = []
        evict = opened.store._store.evict

        def recording(chunks: list[ChunkId], **options: bool) -> object:
            slices.append(len(chunks))
            return evict(chunks, **options)

        monkeypatch.setattr(opened.store._store, "evict", recording)
        put_durable(opened, list(range(40)))
        clock.pass_time(MARGIN_S)
        wait_until(lambda: expired(opened) == 40)
        wait_until(lambda: opened.stats().dram_used_bytes == 0)
        if module is expirer:
            assert max(slices) == 3


def test_namespaces_have_times_of_their_own(tmp_path: Path, clock: CountedClock) -> None:
    brief = NamespaceLimits(name="brief", ttl_s=TTL_S)
    lasting = NamespaceLimits(name="lasting", ttl_s=3600)
    with open_store(tmp_path, namespaces=(brief, lasting)) as opened:
        for name in ("brief", "lasting", "any"):
            for ticket in opened.put([0, 1], namespace_id=namespace_id(name)):
                assert ticket.durable is not None
                assert ticket.durable.result() is Reason.UNSPECIFIED
        for _ in range(2):
            clock.pass_time(MARGIN_S)
            wait_until(lambda: expired(opened) == 2)
        found = [is_found(opened, 0, namespace_id(name)) for name in ("brief", "lasting", "any")]
        assert found == [False, True, True]


def test_without_a_time_there_is_no_thread(tmp_path: Path) -> None:
    with open_store(tmp_path) as opened:
        put_durable(opened, [0])
        assert "kvstored-expire" not in {thread.name for thread in threading.enumerate()}
        assert is_found(opened, 0)


def test_an_index_that_cannot_be_read_ends_nothing(
    mortal: StoreUnderTest,
    clock: CountedClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A look that fails is given up; the next one does its work."""
    looks = mortal.store._room.ages

    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(looks, "look", fail)
        wait_until(lambda: "a look is given up" in caplog.text)
    put_durable(mortal, [0])
    clock.pass_time(MARGIN_S)
    wait_until(lambda: expired(mortal) == 1)
