"""Records of words, as tokens."""

import random

import pytest

from benchmarks.quality.records import QUESTION_TOKENS, WORDS_MAX, Record, RecordWords

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
    assert RecordWords.of_vocabulary({**many, ";": 999}).words == tuple(range(9, WORDS_MAX + 9))
    with pytest.raises(KeyError):
        RecordWords.of_vocabulary({"Ġriver": 9})


def test_no_word_is_in_two_records() -> None:
    words = RecordWords(tuple(range(100)), 100)
    records = words.draw(random.Random(1), 50)
    assert sorted(part for each in records for part in (each.key, each.value)) == list(range(100))
    assert words.draw(random.Random(1), 50) == records


def test_a_record_is_three_tokens() -> None:
    words = RecordWords((1, 2, 3, 4), 9)
    assert words.write([Record(1, 2), Record(4, 3)]) == [9, 1, 2, 9, 4, 3]


def test_a_question_is_a_record_without_its_value() -> None:
    words = RecordWords((1, 2, 3, 4), 9)
    assert words.ask(Record(4, 3)) == words.write([Record(4, 3)])[:QUESTION_TOKENS]


def test_words_are_left_out() -> None:
    assert RecordWords((1, 2, 3, 4), 9).without(iter([3, 1, 9])) == RecordWords((2, 4), 9)
