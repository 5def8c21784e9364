"""A pin that was answered and an eviction, in every order of their steps.

The room, the store, its index and its table are those of the daemon; only the committer is
replaced, so that its steps are the evicting thread's.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kvstored.format.geometry import class_bytes
from kvstored.format.identity import ChunkId
from kvstored.store.index.index import IndexChange
from kvstored.store.write.committer import Commit
from kvstored_contract.reasons import Reason
from tests.support.interleavings import Choices, Turns, every_order
from tests.support.stores import (
    LAYOUT,
    NAMESPACE,
    StoreUnderTest,
    forget_dram,
    key,
    open_store,
    put_durable,
)

CHUNK = ChunkId(NAMESPACE, key(0))
ORDERS_MIN = 200
"""Fewer would mean that the steps are not told apart any more."""


class Steps:
    """A store whose verbs are cut into steps, and a pin and an eviction of its only chunk."""

    def __init__(self, opened: StoreUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened = opened
        self.store = opened.store._store
        self.room = opened.store.put_path._stager._room
        record = self.store.index.get(CHUNK)
        assert record is not None
        self.record = record
        self.turns = Turns([])
        self.pinned: tuple[ChunkId, ...] = ()
        for owner, names in (
            (self.store, ("find", "evict")),
            (self.store.pins, ("pin", "unpin", "is_pinned")),
            (self.room, ("are_stored",)),
            (opened.store._dram, ("which_are_here",)),
            (self.store, ("_on_removed",)),
        ):
            for name in names:
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
            self.room._begin_round(self.store, class_bytes(LAYOUT), class_bytes(LAYOUT))

        return turns.run({"evict": evict, "pin": pin})

    def outcomes(self) -> Iterator[tuple[bool, bool]]:
        """Whether the pin was answered and whether the chunk is there behind it, per order."""
        for _ in every_order(self.run):
            self.turns = Turns([])
            is_there = self.opened.store.match(NAMESPACE, [CHUNK.key]) == 1
            yield bool(self.pinned), is_there
            self.opened.store.unpin(self.pinned)
            if not is_there:
                self._store_again()

    def _store_again(self) -> None:
        self.store.index.apply(IndexChange(puts=((CHUNK, self.record),)))
        self.store.extents.allocator.occupy(self.record.extent)
        self.room.stored(CHUNK, self.record.extent)


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
