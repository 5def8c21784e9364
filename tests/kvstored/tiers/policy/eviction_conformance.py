"""What every implementation of ``EvictionPolicy`` must do. Subclasses give the fixture ``tier``."""

import random
from typing import Protocol

import pytest

from kvstored.format.identity import ChunkId
from kvstored.tiers.policy.protocol import EvictionPolicy
from tests.support.untraced import UNTRACED

GROUPS = (8 * 1024, 12 * 1024)
"""Size classes; a key is of one of them by its number."""
KEY_COUNT = 12


def chunk_id(number: int) -> ChunkId:
    return ChunkId(b"n" * 16, number.to_bytes(32, "big"))


def group_of(number: int) -> int:
    return GROUPS[number % 2]


CHUNKS = [chunk_id(number) for number in range(KEY_COUNT)]


class Tier(Protocol):
    """A policy and its owner, which knows the keys by itself."""

    policy: EvictionPolicy[ChunkId]

    def enter(self, number: int) -> None:
        """Enters a key in the owner's tables, and tells the policy."""

    def leave(self, number: int) -> None:
        """Takes a key out of the owner's tables, and tells the policy."""


class EvictionConformance:
    """Every policy knows exactly the keys of its tier, each in its group."""

    def test_an_empty_tier_has_no_victims(self, tier: Tier) -> None:
        assert list(tier.policy.victims()) == list(tier.policy.victims(GROUPS[0])) == []

    def test_keys_that_are_not_there_are_ignored(self, tier: Tier) -> None:
        tier.enter(1)
        tier.policy.touch(CHUNKS[:1])
        tier.leave(0)
        assert list(tier.policy.victims()) == [CHUNKS[1]]

    def test_a_key_that_enters_again_is_there_once(self, tier: Tier) -> None:
        for _ in range(2):
            tier.enter(1)
        assert list(tier.policy.victims()) == [CHUNKS[1]]
        tier.leave(1)
        assert list(tier.policy.victims()) == []

    def test_victims_of_a_group_are_its_keys(self, tier: Tier) -> None:
        for number in range(KEY_COUNT):
            tier.enter(number)
        for group in GROUPS:
            expected = {CHUNKS[n] for n in range(KEY_COUNT) if group_of(n) == group}
            assert set(tier.policy.victims(group)) == expected
        assert len(list(tier.policy.victims())) == KEY_COUNT

    def test_nothing_is_lost_when_victims_are_not_taken(self, tier: Tier) -> None:
        for number in range(KEY_COUNT):
            tier.enter(number)
        seen = [next(tier.policy.victims()) for _ in range(3)]
        assert seen == seen[:1] * 3
        assert set(tier.policy.victims()) == set(CHUNKS)

    @pytest.mark.parametrize("seed", range(20))
    def test_keys_are_those_of_the_tier_whatever_happens(self, tier: Tier, seed: int) -> None:
        """With uses, hints and evictions in any order; every victim is one of its group."""
        dice = random.Random(seed)
        here: set[int] = set()
        for _ in range(150):
            number = dice.randrange(KEY_COUNT)
            match dice.choice(["enter", "touch", "together", "leave", "hint", "evict", "evict"]):
                case "enter":
                    tier.enter(number)
                    here.add(number)
                case "leave":
                    tier.leave(number)
                    here.discard(number)
                case "touch":
                    tier.policy.touch([CHUNKS[number], CHUNKS[dice.randrange(KEY_COUNT)]])
                case "together":
                    used = [CHUNKS[one] for one in dice.sample(range(KEY_COUNT), 4)]
                    tier.policy.touch(used, together=True)
                case "hint":
                    place = dice.choice([None, dice.randrange(100)])
                    tier.policy.hint({CHUNKS[number]: place})
                case _:
                    group = dice.choice([None, *GROUPS])
                    first = next(tier.policy.victims(group), None)
                    of_group = {n for n in here if group in (None, group_of(n))}
                    assert (first is None) == (not of_group)
                    if first is not None:
                        assert CHUNKS.index(first) in of_group
                        tier.leave(CHUNKS.index(first))
                        here.discard(CHUNKS.index(first))
            for group in (None, *GROUPS):
                expected = sorted(n for n in here if group in (None, group_of(n)))
                found = [CHUNKS.index(key) for key in tier.policy.victims(group)]
                assert sorted(found) == expected

    def test_hints_for_keys_that_are_not_there_enter_nothing(self, tier: Tier) -> None:
        tier.policy.hint({CHUNKS[0]: 3, CHUNKS[1]: None})
        assert list(tier.policy.victims()) == []
        tier.enter(0)
        tier.leave(0)
        tier.policy.hint({CHUNKS[0]: None})
        assert list(tier.policy.victims()) == []


class PlainTier:
    """An owner that keeps nothing of its own."""

    def __init__(self, policy: EvictionPolicy[ChunkId]) -> None:
        self.policy = policy

    def enter(self, number: int) -> None:
        self.policy.insert(CHUNKS[number], group_of(number))

    def leave(self, number: int) -> None:
        self.policy.remove(CHUNKS[number])


class Unit:
    """What goes as a whole; its numbers by position, None where one left."""

    def __init__(self, time: int) -> None:
        self.time = time
        self.numbers: list[int | None] = []


class Units:
    """A plain model of least recently used by sequence."""

    def __init__(self) -> None:
        self._units: dict[int, Unit] = {}
        self._clock = 0

    def enter(self, number: int) -> None:
        self._clock += 1
        if number in self._units:
            self._units[number].time = self._clock
        else:
            self._move(number, Unit(self._clock))

    def leave(self, number: int) -> None:
        unit = self._units.pop(number, None)
        if unit is not None:
            place = unit.numbers.index(number)
            unit.numbers[place] = None
            if place == len(unit.numbers) - 1:
                unit.numbers.pop()

    def touch(self, numbers: list[int]) -> None:
        for number in numbers:
            if number in self._units:
                self.enter(number)

    def together(self, numbers: list[int]) -> None:
        here = [number for number in dict.fromkeys(numbers) if number in self._units]
        if not here:
            return
        unit = self._units[here[0]]
        is_whole = {number for number in unit.numbers if number is not None} == set(here)
        if not is_whole:
            if unit.numbers[-1] != here[0]:
                unit = Unit(0)
                self._move(here[0], unit)
            for number in here[1:]:
                self._move(number, unit)
        self.enter(here[0])

    def victims(self) -> list[int]:
        def rank(number: int) -> tuple[int, int]:
            unit = self._units[number]
            return unit.time, -unit.numbers.index(number)

        return sorted(self._units, key=rank)

    def _move(self, number: int, unit: Unit) -> None:
        self.leave(number)
        unit.numbers.append(number)
        self._units[number] = unit


class LeastRecentlyUsedConformance(EvictionConformance):
    """Those that evict what was not used for the longest time agree on the order too."""

    @pytest.mark.parametrize("seed", range(20))
    def test_order_is_that_of_the_last_use(self, tier: Tier, seed: int) -> None:
        dice = random.Random(seed)
        model: list[int] = []
        for _ in range(80):
            number = dice.randrange(KEY_COUNT)
            match dice.choice(["enter", "touch", "touch", "leave"]):
                case "enter":
                    tier.enter(number)
                    model = [*(one for one in model if one != number), number]
                case "leave":
                    tier.leave(number)
                    model = [one for one in model if one != number]
                case _:
                    used = [number, dice.randrange(KEY_COUNT)]
                    tier.policy.touch([CHUNKS[one] for one in used])
                    for one in used:
                        if one in model:
                            model = [*(other for other in model if other != one), one]
        assert list(tier.policy.victims()) == [CHUNKS[number] for number in model]
        for group in GROUPS:
            of_group = [CHUNKS[number] for number in model if group_of(number) == group]
            assert list(tier.policy.victims(group)) == of_group


class WholeSequencesConformance(LeastRecentlyUsedConformance):
    """Those that keep sequences whole agree on what goes with what, too."""

    @UNTRACED
    @pytest.mark.parametrize("seed", range(20))
    def test_a_sequence_goes_as_a_whole(self, tier: Tier, seed: int) -> None:
        """Whatever part of it is used, shared, or leaves."""
        dice = random.Random(seed)
        model = Units()
        for _ in range(100):
            number = dice.randrange(KEY_COUNT)
            used = dice.sample(range(KEY_COUNT), dice.randrange(1, 6))
            match dice.choice(["enter", "enter", "touch", "together", "together", "leave"]):
                case "enter":
                    tier.enter(number)
                    model.enter(number)
                case "leave":
                    tier.leave(number)
                    model.leave(number)
                case "touch":
                    tier.policy.touch([CHUNKS[one] for one in used])
                    model.touch(used)
                case _:
                    used.append(used[0])
                    tier.policy.touch([CHUNKS[one] for one in used], together=True)
                    model.together(used)
            expected = model.victims()
            assert list(tier.policy.victims()) == [CHUNKS[one] for one in expected]
            for group in GROUPS:
                of_group = [CHUNKS[one] for one in expected if group_of(one) == group]
                assert list(tier.policy.victims(group)) == of_group

    def test_what_a_sequence_begins_with_is_what_is_left_of_it(self, tier: Tier) -> None:
        for number in (0, 5, 1, 4, 2):
            tier.enter(number)
        tier.policy.touch(CHUNKS[:3], together=True)
        tier.policy.touch([CHUNKS[5]])
        assert list(tier.policy.victims()) == [CHUNKS[one] for one in (4, 2, 1, 0, 5)]
        tier.leave(2)
        tier.enter(3)
        tier.policy.touch([CHUNKS[1], CHUNKS[3]], together=True)
        assert list(tier.policy.victims()) == [CHUNKS[one] for one in (4, 5, 3, 1, 0)]

    def test_a_shared_key_stays_while_one_of_its_sequences_does(self, tier: Tier) -> None:
        for number in range(6):
            tier.enter(number)
        for own in ([2, 3], [4, 5]):
            tier.policy.touch([CHUNKS[one] for one in (0, 1, *own)], together=True)
        assert list(tier.policy.victims()) == [CHUNKS[one] for one in (3, 2, 5, 4, 1, 0)]
        tier.policy.touch([CHUNKS[one] for one in range(4)], together=True)
        assert list(tier.policy.victims()) == [CHUNKS[one] for one in (5, 4, 3, 2, 1, 0)]
