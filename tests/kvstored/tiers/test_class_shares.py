"""How size classes share the devices when one of them turns over faster than the others."""

import random

from kvstored.store.space.chunk_columns import HELD
from kvstored.tiers.chunks.nvme_victims import worth
from tests.kvstored.tiers.test_fragmentation import (
    CAPACITY_BYTES,
    LARGE,
    SMALL,
    InstantStore,
)
from tests.support.scale import Scale, at

TALKS = 400
STATES = 7
"""Large chunks of a conversation that each of its turns uses, beside one that it puts."""
WORDS = 2
"""Small chunks that it uses in the end."""
ROUNDS = 7
LOST_SHARE_MAX = 0.05


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
