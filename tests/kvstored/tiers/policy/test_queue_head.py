import random
from collections.abc import Sequence

import pytest

from kvstored.tiers.policy.prefetch_plan import WaitingSequence
from kvstored.tiers.policy.queue_head import QueuedSequence, QueueHead
from kvstored.tiers.policy.queue_places import PLACE_BITS
from tests.kvstored.tiers.policy.test_queue_places import of_sequences


def queued(
    name: str, place: int, chunks: Sequence[str], size: int = 10
) -> QueuedSequence[str, str]:
    return QueuedSequence(name, place, WaitingSequence(chunks=chunks, chunk_bytes=size))


@pytest.fixture
def head() -> QueueHead[str, str]:
    return QueueHead(40)


def names(head: QueueHead[str, str]) -> list[str]:
    return [sequence.name for sequence in head.sequences()]


def test_only_what_fits_counts(head: QueueHead[str, str]) -> None:
    changed = head.change([queued("x", 1, "ab"), queued("y", 2, "cd"), queued("z", 3, "e")])
    assert of_sequences(changed) == {"a": 1, "b": 1, "c": 2, "d": 2, "e": None}
    assert (names(head), head.used_bytes, len(head)) == (["x", "y"], 40, 3)


def test_who_enters_in_front_takes_the_room_of_the_last(head: QueueHead[str, str]) -> None:
    head.change([queued("x", 1, "ab"), queued("y", 2, "cd")])
    assert of_sequences(head.change([queued("w", 0, "e")])) == {"e": 0, "c": None, "d": None}
    assert names(head) == ["w", "x"]
    assert of_sequences(head.change([], ["x"])) == {"a": None, "b": None, "c": 2, "d": 2}
    assert names(head) == ["w", "y"]


def test_nobody_passes_one_who_does_not_fit(head: QueueHead[str, str]) -> None:
    head.change([queued("x", 1, "abc"), queued("y", 2, "de"), queued("z", 3, "f")])
    assert names(head) == ["x"]
    assert of_sequences(head.change([], ["y"])) == {"f": 3}


def test_a_shared_chunk_counts_once(head: QueueHead[str, str]) -> None:
    head.change([queued("x", 1, "abc"), queued("y", 2, "abd")])
    assert (names(head), head.used_bytes) == (["x", "y"], 40)
    assert of_sequences(head.change([], ["x"])) == {"a": 2, "b": 2, "c": None}
    assert head.used_bytes == 30


def test_of_a_sequence_that_is_too_large_the_first_chunks_count(
    head: QueueHead[str, str],
) -> None:
    assert of_sequences(head.change([queued("x", 1, "abcdefg")])) == dict.fromkeys("abcd", 1)
    assert of_sequences(head.change([], ["x", "unknown"])) == dict.fromkeys("abcd")
    assert (head.used_bytes, len(head)) == (0, 0)


def test_a_name_may_move_and_change(head: QueueHead[str, str]) -> None:
    head.change([queued("x", 1, "ab"), queued("y", 2, "c")])
    assert of_sequences(head.change([queued("x", 5, "ad")])) == {"a": 5, "b": None, "d": 5}
    assert names(head) == ["y", "x"]


def test_two_who_disagree_about_the_size_of_a_chunk(head: QueueHead[str, str]) -> None:
    """Bug: bytes were taken back that had never been counted."""
    head.change([queued("x", 1, "a", size=20), queued("y", 2, "a", size=5)])
    assert head.used_bytes == 20
    head.change([], ["x"])
    head.change([], ["y"])
    assert head.used_bytes == 0


def test_a_head_of_another_size_has_other_sequences(head: QueueHead[str, str]) -> None:
    head.change([queued("x", 1, "ab"), queued("y", 2, "cdefg"), queued("z", 3, "h")])
    assert (names(head), head.used_bytes) == (["x"], 20)
    assert head.resize(40) == {}
    assert of_sequences(head.resize(70)) == {
        **dict.fromkeys("ab", 1),
        **dict.fromkeys("cdefg", 2),
    }
    assert (names(head), head.used_bytes) == (["x", "y"], 70)
    assert of_sequences(head.resize(10)) == {"a": 1, **dict.fromkeys("bcdefg")}
    assert (names(head), head.used_bytes) == (["x"], 10)
    assert of_sequences(head.change([], ["x"])) == {"a": None, "c": 2}


def test_nothing_counts_without_room() -> None:
    head: QueueHead[str, str] = QueueHead(0)
    assert of_sequences(head.change([queued("x", 1, "ab")])) == {}
    assert of_sequences(head.change([], ["x"])) == {}


@pytest.mark.parametrize("seed", range(20))
def test_the_head_is_that_of_a_walk_over_the_queue(seed: int) -> None:
    dice = random.Random(seed)
    head: QueueHead[int, int] = QueueHead(60)
    waiting: dict[int, QueuedSequence[int, int]] = {}
    known: dict[int, int | None] = {}
    for _ in range(300):
        name = dice.randrange(10)
        if name in waiting and dice.random() < 0.7:
            del waiting[name]
            known |= head.change([], [name])
        else:
            place = dice.randrange(1000) * 10 + name
            chunks = dice.sample(range(20), dice.randrange(1, 6))
            sequence = QueuedSequence(name, place, WaitingSequence(chunks=chunks, chunk_bytes=10))
            waiting[name] = sequence
            known |= head.change([sequence])
        expected: dict[int, int] = {}
        inside = []
        for sequence in sorted(waiting.values(), key=lambda one: one.place):
            union = {*expected, *sequence.waiting.chunks}
            if 10 * len(union) > 60:
                break
            inside.append(sequence)
            for chunk in sequence.waiting.chunks:
                expected.setdefault(chunk, sequence.place)
        assert head.sequences() == inside
        assert {key: at >> PLACE_BITS for key, at in known.items() if at is not None} == expected
        assert head.used_bytes == 10 * len(expected)
