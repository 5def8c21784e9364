"""Records of words, as tokens."""

import random

import pytest

from benchmarks.quality.records import WORDS_MAX, Record, RecordWords

VOCABULARY = {
    "Ġriver": 9,
    "Ġseven": 3,
    "Ġstone": 5,
    "Ġred": 4,
    "Ġto": 1,
    "blue": 2,
    "ĠBig": 6,
    ";": 7,
}


def test_words_are_whole_and_in_lower_case() -> None:
    assert RecordWords.of_vocabulary(VOCABULARY) == RecordWords((3, 4, 5, 9), 7)
    many = {f"Ġ{'a' * (number + 3)}": number for number in range(WORDS_MAX + 9)}
    assert RecordWords.of_vocabulary({**many, ";": 999}).words == tuple(range(WORDS_MAX))
    with pytest.raises(KeyError):
        RecordWords.of_vocabulary({"Ġriver": 9})


def test_no_word_is_in_two_records() -> None:
    words = RecordWords(tuple(range(100)), 100)
    records = words.draw(random.Random(1), 50)
    assert sorted(part for each in records for part in (each.key, each.value)) == list(range(100))
    assert words.draw(random.Random(1), 50) == records


def test_a_record_is_three_tokens() -> None:
    words = RecordWords((1, 2, 3, 4), 9)
    assert words.write([Record(1, 2), Record(4, 3)]) == [1, 2, 9, 4, 3, 9]
