"""How size classes share the devices when one of them turns over faster than the others."""

import random

import pytest

from kvstored.format.identity import ChunkId
from kvstored.store.space.chunk_columns import HELD
from kvstored.tiers.chunks import nvme_victims
from kvstored.tiers.chunks.nvme_victims import worth
from tests.kvstored.tiers.test_fragmentation import (
    CAPACITY_BYTES,
    CLASSES,
    SLAB_BYTES,
    InstantStore,
)
from tests.support.scale import Scale, at

SMALL, MIDDLE, LARGE = CLASSES
TALKS = 400
STATES = 7
"""Large chunks of a conversation that each of its turns uses, beside one that it puts."""
WORDS = 2
"""Small chunks that it uses in the end."""
ROUNDS = 7
LOST_SHARE_MAX = 0.05


class PinningStore(InstantStore):
    """Some chunks of it are pinned."""

    def __init__(self) -> None:
        super().__init__()
        self.pinned: set[ChunkId] = set()

    def is_pinned(self, chunk: ChunkId) -> bool:
        return chunk in self.pinned


def filled(store: InstantStore) -> list[list[ChunkId]]:
    """The large chunks of each slab, of which the devices are full."""
    slabs: dict[tuple[int, int], list[ChunkId]] = {}
    while not store.fragmentation:
        last = store.put(LARGE)
        extent = store.records[last].extent
        place = extent.device_index, store.allocator.geometry.locate(extent)[0]
        slabs.setdefault(place, []).append(last)
    return [[chunk for chunk in slab if chunk in store.records] for slab in slabs.values()]


def fill_slab(store: InstantStore, class_bytes: int) -> list[ChunkId]:
    """As many chunks as one slab has, of a class that had none."""
    return [store.put(class_bytes) for _ in range(SLAB_BYTES // class_bytes)]


def test_chunks_are_worth_the_less_the_longer_they_have_rested() -> None:
    assert worth([100], 100, within=50) == 1.0
    assert worth([50], 100, within=50) == 0.25
    assert worth([50, 50], 100, within=50) == 0.5
    assert worth([100 | HELD], 100, within=50) == 1.0
    assert worth([], 100, within=50) == 0.0


@at(Scale.QUICK)
def test_a_small_class_lost_what_each_turn_used() -> None:
    """*Bug:* it kept to its few slabs, and evicted token ids of conversations before old states.

    Conversations take turns in random order. Each uses its states and its token ids, of which
    there are more and more, and puts a large chunk and a small one. Others have filled the devices
    before. What is used takes four fifths of them.
    """
    store, generator = InstantStore(), random.Random(7)
    for _ in range(CAPACITY_BYTES // LARGE):
        store.put(LARGE)
    states = [[store.put(LARGE) for _ in range(STATES)] for _ in range(TALKS)]
    words = [[store.put(SMALL)] for _ in range(TALKS)]
    uses = lost = 0
    for number in range(ROUNDS):
        for talk in generator.sample(range(TALKS), TALKS):
            kept = [chunk for chunk in words[talk] if chunk in store.records]
            uses, lost = uses + len(words[talk]), lost + len(words[talk]) - len(kept)
            words[talk] = kept + [store.put(SMALL) for _ in words[talk][len(kept) :]]
            for chunk in (*states[talk], *words[talk]):
                store.touch(chunk)
            states[talk] = [*states[talk][1:], store.put(LARGE)]
            is_longer = number % 4 == 3 and len(words[talk]) < WORDS
            words[talk] += [store.put(SMALL)] if is_longer else []
            store.put(SMALL)
    assert lost <= LOST_SHARE_MAX * uses


def test_a_slab_that_could_not_go_hid_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """*Bug:* only the first slab that was worth less was tried, though somebody had it pinned."""
    monkeypatch.setattr(nvme_victims, "OLDEST_LOOKED_AT", 64)
    store = PinningStore()
    slabs = filled(store)
    small = fill_slab(store, SMALL)
    store.pinned = {slabs[0][0]}
    # So the first has most of the oldest.
    for slab in slabs[1:]:
        for chunk in slab[:4]:
            store.touch(chunk)
    for _ in range(8):
        small.append(store.put(SMALL))
    assert all(chunk in store.records for chunk in small)


def test_what_one_class_did_not_want_was_hidden_from_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """*Bug:* a slab that was worth too much for a class of large chunks was so for a small one.

    All slabs of large chunks have an old one and others that were used since: that is worth more
    than middle-sized chunks of the same bytes, and less than small ones.
    """
    monkeypatch.setattr(nvme_victims, "OLDEST_LOOKED_AT", nvme_victims.SLABS_COMPARED)
    store = InstantStore()
    slabs = filled(store)
    middle, small = fill_slab(store, MIDDLE), fill_slab(store, SMALL)
    for _ in range(2):
        for slab in slabs:
            for chunk in slab[1:]:
                store.touch(chunk)
    middle.append(store.put(MIDDLE))
    assert not all(chunk in store.records for chunk in middle), "it evicted its own"
    small.append(store.put(SMALL))
    assert all(chunk in store.records for chunk in small)
