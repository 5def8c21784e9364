import random

import pytest

from kvstored.tiers.policy.merged_places import LAG_MIN, LAG_SHARE, MergedPlaces
from tests.support.untraced import UNTRACED


@pytest.fixture
def merged() -> MergedPlaces[str, str]:
    return MergedPlaces()


def test_a_queue_keeps_the_places_that_its_engine_gives(merged: MergedPlaces[str, str]) -> None:
    moved = merged.change("e", {"x": 70, "y": 75}, ())
    assert moved == {("e", "x"): 0, ("e", "y"): 5}
    assert merged.change("e", {"z": 90}, ["x"]) == {("e", "z"): 20}
    assert merged.change("e", {"w": 71}, []) == {("e", "w"): 1}
    assert merged.change("e", {}, ["w", "y", "z", "unknown"]) == {}


def test_heads_of_several_engines_wait_as_long(merged: MergedPlaces[str, str]) -> None:
    """An engine that counts from a million is merged with one that counts from 0."""
    assert merged.change("old", {"x": 10**6, "y": 10**6 + 1}, ()) == {
        ("old", "x"): 0,
        ("old", "y"): 1,
    }
    assert merged.change("new", {"a": 0, "b": 1}, ()) == {("new", "a"): 0, ("new", "b"): 1}


def test_a_queue_that_was_empty_begins_at_the_clock(merged: MergedPlaces[str, str]) -> None:
    merged.change("e", {"x": 0, "y": 100}, ())
    merged.change("e", {}, ["x"])
    assert merged.change("f", {"a": 3}, ()) == {("f", "a"): 100}
    merged.change("e", {}, ["y"])
    assert merged.change("e", {"x": 7}, ()) == {("e", "x"): 100}


def test_a_slow_engine_is_moved_to_the_others(merged: MergedPlaces[str, str]) -> None:
    merged.change("slow", {"a": 0, "b": 1}, ())
    merged.change("fast", {str(number): number for number in range(100)}, ())
    moved = [merged.change("fast", {}, [str(number)]) for number in range(100)]
    told = [set(each) for each in moved if each]
    assert len(told) == 100 // (LAG_MIN + 1)
    assert all(each == {("slow", "a"), ("slow", "b")} for each in told)


@UNTRACED
@pytest.mark.parametrize("seed", range(10))
def test_positions_are_right_to_a_part_of_a_queue(seed: int) -> None:
    """Every head is near every other, and each engine's names are in its order."""
    dice = random.Random(seed)
    merged: MergedPlaces[int, int] = MergedPlaces()
    queues: list[dict[int, int]] = [{}, {}, {}]
    places: dict[tuple[int, int], int] = {}
    next_name = 0
    moves = 0
    for _ in range(3000):
        engine = dice.choice([0, 1, 1, 2, 2, 2, 2])
        queue = queues[engine]
        if len(queue) > 5 and dice.random() < 0.5:
            gone = min(queue, key=lambda name: queue[name])
            del queue[gone]
            del places[engine, gone]
            moved = merged.change(engine, {}, [gone])
        else:
            place = max(queue.values(), default=0) + 1
            queue[next_name] = place
            moved = merged.change(engine, {next_name: place}, ())
            next_name += 1
        places |= moved
        moves += len(moved)
        heads = []
        for number, each in enumerate(queues):
            in_order = sorted(each, key=each.__getitem__)
            told = [places[number, name] for name in in_order]
            assert told == sorted(told)
            heads += told[:1]
        slack = max(LAG_MIN, max(map(len, queues)) // LAG_SHARE)
        assert max(heads) - min(heads) <= 2 * slack + 1
    assert moves < 3000 * 2 * LAG_SHARE


def test_names_that_move_take_no_memory(merged: MergedPlaces[str, str]) -> None:
    merged.change("e", {"first": 0}, ())
    for place in range(1000):
        merged.change("e", {"other": place + 1}, ())
    assert len(merged._queues["e"].heap) < 100
