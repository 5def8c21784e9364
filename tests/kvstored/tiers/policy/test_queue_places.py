import random

import pytest

from kvstored.tiers.policy.queue_places import PLACE_BITS, QueuePlaces


def of_sequences(changed: dict[str, int | None]) -> dict[str, int | None]:
    """The places of sequences in those of their chunks."""
    return {key: None if at is None else at >> PLACE_BITS for key, at in changed.items()}


@pytest.fixture
def places() -> QueuePlaces[str, str]:
    return QueuePlaces()


def test_a_shared_key_has_the_place_of_the_first_that_waits(
    places: QueuePlaces[str, str],
) -> None:
    assert of_sequences(places.enter("x", 5, "ab")) == {"a": 5, "b": 5}
    assert of_sequences(places.enter("y", 7, "bc")) == {"c": 7}
    assert of_sequences(places.enter("z", 3, "c")) == {"c": 3}
    assert of_sequences(places.leave(["x"])) == {"a": None, "b": 7}
    assert places.leave(["y"]) == {"b": None}
    assert places.leave(["z", "unknown"]) == {"c": None}
    assert len(places) == 0


def test_a_name_waits_once(places: QueuePlaces[str, str]) -> None:
    places.enter("x", 5, "a")
    with pytest.raises(ValueError, match="waits already"):
        places.enter("x", 6, "a")
    places.leave(["x"])
    assert of_sequences(places.enter("x", 6, "a")) == {"a": 6}
    assert places.leave(["x"]) == {"a": None}


@pytest.mark.parametrize("seed", range(20))
def test_places_are_those_of_a_walk_over_the_queue(seed: int) -> None:
    dice = random.Random(seed)
    places: QueuePlaces[int, int] = QueuePlaces()
    waiting: dict[int, tuple[int, list[int]]] = {}
    known: dict[int, int | None] = {}
    for _ in range(200):
        name = dice.randrange(8)
        if name in waiting:
            del waiting[name]
            known |= places.leave([name])
        else:
            waiting[name] = (dice.randrange(20), dice.sample(range(6), 3))
            known |= places.enter(name, *waiting[name])
        for key in range(6):
            of_key = [place for place, keys in waiting.values() if key in keys]
            at = known.get(key)
            assert (None if at is None else at >> PLACE_BITS) == (min(of_key) if of_key else None)


def test_a_sequence_goes_as_a_whole_and_its_last_chunk_first(
    places: QueuePlaces[str, str],
) -> None:
    """Also where another one has the same place, and where its first chunks were another one's."""
    known = places.enter("x", 5, "abc") | places.enter("y", 5, "def") | places.enter("z", 2, "ab")
    assert sorted(known, key=lambda key: known[key] or 0) == list("abcdef")
    known |= places.leave(["z"])
    assert sorted(known, key=lambda key: known[key] or 0) == list("abcdef")


def test_places_of_those_who_left_take_no_memory() -> None:
    """Bug: while the first one waited, every other that came and went stayed in a heap."""
    places: QueuePlaces[str, str] = QueuePlaces()
    places.enter("first", 0, "a")
    for place in range(1, 1000):
        places.enter("other", place, "a")
        assert places.sequences("a") == 2
        assert places.leave(["other"]) == {}
    assert len(places._heaps["a"]) < 100
    assert places.leave(["first"]) == {"a": None}
    assert (places.sequences("a"), len(places._heaps)) == (0, 0)
