"""A pin that was answered and an eviction, in every order of their steps.

The room, the store, its index and its table are those of the daemon; only the committer is
replaced, so that its steps are the evicting thread's.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kvstored.format.chunk_record import ChunkRecord
from kvstored.format.geometry import ChunkGeometry, class_bytes
from kvstored.format.identity import ChunkId
from kvstored.store.index.index import IndexChange
from kvstored.store.write.committer import Commit
from kvstored.tiers.chunks.frame import FrameState
from kvstored.tiers.chunks.nvme_victims import Victims
from kvstored.tiers.policy.shares import OTHERS
from kvstored_contract.reasons import Reason
from tests.support.interleavings import Choices, Turns, every_order
from tests.support.scale import Scale, at
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

CHUNK, BESIDE = (ChunkId(NAMESPACE, key(number)) for number in range(2))
"""``BESIDE`` lies in the same slab, where there are two."""
ORDERS_MIN = 200
"""Fewer would mean that the steps are not told apart any more."""


class Steps:
    """A store whose verbs are cut into steps, and a pin of a chunk and an eviction of all."""

    uncut: frozenset[str] = frozenset()
    """Verbs that are one step with what is before them."""

    def __init__(
        self,
        opened: StoreUnderTest,
        monkeypatch: pytest.MonkeyPatch,
        chunks: Sequence[ChunkId] = (CHUNK,),
    ) -> None:
        self.opened = opened
        self.chunks = chunks
        self.store = opened.store._store
        self.room = opened.store.put_path._stager._room
        self.records: dict[ChunkId, ChunkRecord] = {}
        for chunk in chunks:
            record = self.store.index.get(chunk)
            assert record is not None
            self.records[chunk] = record
        self.turns = Turns([])
        self.pinned: tuple[ChunkId, ...] = ()
        for owner, names in (
            (self.store, ("find", "evict")),
            (self.store.pins, ("pin", "unpin", "is_pinned")),
            (self.room, ("are_stored",)),
            (opened.store._dram, ("which_are_here",)),
            (self.store, ("_on_removed",)),
        ):
            for name in set(names) - self.uncut:
                monkeypatch.setattr(owner, name, self._cut(getattr(owner, name)))
        monkeypatch.setattr(self.store.committer, "submit", self._commit)

    def _cut(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def in_steps(*args: Any, **options: Any) -> Any:
            self.turns.point()
            return call(*args, **options)

        return in_steps

    def _commit(self, commit: Commit) -> None:
        self.turns.point()
        self.store.index.apply(commit.change)
        self.turns.point()
        commit.done(Reason.UNSPECIFIED)

    def run(self, turns: Turns) -> Choices:
        self.turns = turns

        def pin() -> None:
            self.pinned = self.opened.store.pin(NAMESPACE, [CHUNK.key])

        def evict() -> None:
            size = class_bytes(LAYOUT)
            self.room._begin_round(self.store, size, NAMESPACE, (size, OTHERS))

        return turns.run({"evict": evict, "pin": pin, **self.others()})

    def others(self) -> dict[str, Callable[[], None]]:
        """What goes on besides."""
        return {}

    def outcomes(self) -> Iterator[tuple[bool, ...]]:
        """Whether the pin was answered and whether each chunk is there after it, per order."""
        for _ in every_order(self.run):
            self.turns = Turns([])
            are_there = [
                self.opened.store.match(NAMESPACE, [chunk.key]) == 1 for chunk in self.chunks
            ]
            yield bool(self.pinned), *are_there
            self.opened.store.unpin(self.pinned)
            for chunk in self.chunks:
                self._store_again(chunk)

    def _store_again(self, chunk: ChunkId) -> None:
        if self.store.index.get(chunk) is not None:
            return
        record = self.records[chunk]
        self.store.index.apply(IndexChange(puts=((chunk, record),)))
        self.store.extents.allocator.occupy(record.extent)
        self.room.stored(chunk, record.extent)


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    with open_store(tmp_path) as opened:
        opened.fill(1)
        put_durable(opened, [0])
        forget_dram(opened, [0])
        with monkeypatch.context() as patch:
            yield Steps(opened, patch)


def test_a_chunk_whose_pin_was_answered_was_evicted(steps: Steps) -> None:
    """Bug: victims were chosen, and deleted later without another look at pins."""
    outcomes = list(steps.outcomes())
    assert len(outcomes) >= ORDERS_MIN
    assert (True, False) not in outcomes
    assert {(True, True), (False, False)} <= set(outcomes)


def test_the_orders_find_an_eviction_that_does_not_look_at_pins(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evict(chunks: list[ChunkId], *, is_whole: bool) -> list[Future[bool]]:
        assert not is_whole
        return [steps.store.delete(chunk) for chunk in chunks]

    monkeypatch.setattr(steps.store, "evict", steps._cut(evict))
    assert (True, False) in steps.outcomes()


class BothTiers(Steps):
    """The chunk lies in DRAM as well, which needs all of its room for a larger one meanwhile."""

    uncut = frozenset({"find", "are_stored", "is_pinned", "_on_removed"})

    def others(self) -> dict[str, Callable[[], None]]:
        dram = self.opened.store._dram
        dram.drop(CHUNK)
        self._bring(CHUNK, class_bytes(LAYOUT))
        assert dram.contains(CHUNK)

        def claim() -> None:
            self._bring(BESIDE, dram.space.class_bytes_max)

        return {"claim": claim}

    def _bring(self, chunk: ChunkId, size: int) -> None:
        dram = self.opened.store._dram
        claimed = dram.claim(
            chunk,
            layout_id=LAYOUT.layout_id,
            geometry=ChunkGeometry.of(LAYOUT, LAYOUT.chunk_tokens),
            class_bytes=size,
            deadline=0.0,
        )
        if claimed is not None:
            dram.publish(claimed.frame, FrameState.CLEAN)


@pytest.fixture
def both_tiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BothTiers]:
    with open_store(tmp_path, dram_bytes=MIB) as opened:
        opened.fill(1)
        put_durable(opened, [0])
        with monkeypatch.context() as patch:
            yield BothTiers(opened, patch)


def test_a_chunk_whose_pin_was_answered_stays_in_one_of_two_tiers_that_both_evict(
    both_tiers: BothTiers,
) -> None:
    outcomes = list(both_tiers.outcomes())
    assert len(outcomes) >= ORDERS_MIN
    assert (True, False) not in outcomes
    assert {(True, True), (False, False)} <= set(outcomes)


def test_the_orders_find_a_tier_that_believes_the_other_has_the_chunk(
    both_tiers: BothTiers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DRAM has to ask whether the devices still have what is pinned."""
    dram = both_tiers.opened.store._dram
    monkeypatch.setattr(dram._victims, "_is_kept", lambda _: False)
    assert (True, False) in both_tiers.outcomes()


@pytest.fixture
def whole_slab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    """Two chunks in one slab, which goes as a whole or not at all."""
    with open_store(tmp_path) as opened:
        opened.fill(2)
        put_durable(opened, [0, 1])
        forget_dram(opened, [0, 1])
        with monkeypatch.context() as patch:
            steps = Steps(opened, patch, (CHUNK, BESIDE))
            victims = Victims([CHUNK, BESIDE], is_whole=True)
            patch.setattr(steps.room._victims, "for_room", lambda *_: victims)
            yield steps


@at(Scale.QUICK)
def test_a_slab_with_a_pinned_chunk_stays_whole(whole_slab: Steps) -> None:
    """Without it the chunk's neighbours would go, and make no room for any other class."""
    outcomes = list(whole_slab.outcomes())
    assert len(outcomes) >= ORDERS_MIN
    assert set(outcomes) == {(True, True, True), (False, False, False)}


@at(Scale.QUICK)
def test_the_orders_find_a_slab_that_is_emptied_around_a_pinned_chunk(
    whole_slab: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    evict = whole_slab.store.evict

    def each_alone(chunks: Sequence[ChunkId], *, is_whole: bool) -> list[Future[bool]]:
        assert is_whole
        return evict(chunks)

    monkeypatch.setattr(whole_slab.store, "evict", each_alone)
    assert (True, True, False) in whole_slab.outcomes()


@at(Scale.QUICK)
def test_the_orders_find_a_slab_whose_pins_are_looked_at_one_by_one(
    whole_slab: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking first and evicting later is what the lock is for."""
    evict = whole_slab.store.evict

    def look_first(chunks: Sequence[ChunkId], *, is_whole: bool) -> list[Future[bool]]:
        assert is_whole
        if any(whole_slab.store.pins.is_pinned(chunk) for chunk in chunks):
            return []
        return [future for chunk in chunks for future in evict([chunk])]

    monkeypatch.setattr(whole_slab.store, "evict", look_first)
    assert (True, True, False) in whole_slab.outcomes()
