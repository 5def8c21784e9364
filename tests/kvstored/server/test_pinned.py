"""Pins of many chunks, part after part."""

from collections.abc import Sequence
from typing import cast

import pytest

from kvstored.format.identity import ChunkId
from kvstored.server.pinned import matched_chunks, pinned_chunks
from kvstored.store.index.failure import IndexFailure
from kvstored.tiers.tiered_store import TieredStore
from kvstored.turnstile import PART_ITEMS
from tests.kvstored.server.fake_store import FakeStore

NAMESPACE = bytes(16)
KEYS = [number.to_bytes(32, "big") for number in range(3 * PART_ITEMS)]


class FailingStore(FakeStore):
    """Everything is stored; pins fail after so many parts."""

    def __init__(self, *, parts_that_succeed: int) -> None:
        super().__init__()
        self.stored = {ChunkId(NAMESPACE, key) for key in KEYS}
        self._parts_that_succeed = parts_that_succeed

    def pin(self, namespace_id: bytes, keys: Sequence[bytes]) -> tuple[ChunkId, ...]:
        if self.looks_begun == self._parts_that_succeed:
            raise IndexFailure("the index has failed")
        return super().pin(namespace_id, keys)


@pytest.mark.parametrize("parts_that_succeed", [0, 1, 2])
def test_pins_before_a_part_that_fails_are_returned(parts_that_succeed: int) -> None:
    """*Bug:* the caller heard only of the failure, and the chunks stayed pinned for ever."""
    store = FailingStore(parts_that_succeed=parts_that_succeed)
    with pytest.raises(IndexFailure):
        pinned_chunks(cast("TieredStore", store), NAMESPACE, KEYS)
    assert store.looks_begun == parts_that_succeed
    assert set(store.pins.values()) <= {0}
    assert max(store.unpinned_at_once, default=0) <= PART_ITEMS


def test_every_part_is_pinned() -> None:
    store = FailingStore(parts_that_succeed=3)
    store.stored.remove(ChunkId(NAMESPACE, KEYS[PART_ITEMS + 1]))
    pinned = pinned_chunks(cast("TieredStore", store), NAMESPACE, KEYS)
    assert pinned.prefix_length == PART_ITEMS + 1
    assert pinned.are_pinned == [number != PART_ITEMS + 1 for number in range(len(KEYS))]
    assert set(store.pins.values()) == {1}
    assert len(pinned.chunks) == len(KEYS) - 1
    assert matched_chunks(cast("TieredStore", store), NAMESPACE, KEYS) == PART_ITEMS + 1
