"""Questions about records, after a window has overflowed."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.benchmark import BenchmarkError
from benchmarks.quality.model import WINDOW_TOKENS
from benchmarks.quality.records import RecordWords
from benchmarks.quality.retrieval import Question, ask, ask_by_talk, draw_question
from benchmarks.quality.way import Way
from tests.benchmarks.quality.talking import lab_in_memory

WORDS = RecordWords(tuple(range(1000, 1400)), 1400)
TEXT = list(range(1000))


def draw(seed: int) -> Question:
    return draw_question(random.Random(seed), WORDS, TEXT, window_tokens=256)


@pytest.mark.parametrize("seed", range(8))
def test_the_record_that_is_asked_for_is_left(seed: int) -> None:
    question = draw(seed)
    assert len(question.history) == 255
    (kept,) = question.cut.kept
    left = question.history[kept.start : kept.stop]
    place = left.index(question.prompt[-1])
    assert left[place + 1] == question.answer
    assert question.history.count(question.answer) == 1
    dropped = [token for token in question.history[: kept.start] if token >= 1000]
    assert len(dropped) > 30
    assert len(question.prompt) + 1 + len(kept) <= 256


def test_what_text_says_is_in_no_record() -> None:
    text = list(range(1000, 1300))
    for seed in range(4):
        question = draw_question(random.Random(seed), WORDS, text, window_tokens=256)
        key = question.prompt[-1]
        assert [*question.history, *question.prompt].count(key) == 2
        assert question.prompt[-2] == WORDS.separator


def test_questions_come_from_the_generator() -> None:
    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_a_runner_and_a_cache_cut_by_hand_say_the_same(small_model: Path) -> None:
    with lab_in_memory(small_model) as lab:
        generator = random.Random(3)
        text = lab.texts["documents"]
        for number in range(3):
            question = draw_question(generator, lab.words, text, window_tokens=WINDOW_TOKENS)
            answer = ask_by_talk(lab.talker, lab.teacher, f"{number}", question)
            by_hand = ask(lab.model, question, Way.AS, window_tokens=WINDOW_TOKENS)
            assert answer == by_hand


def test_a_cut_elsewhere_is_no_measurement(small_model: Path) -> None:
    with lab_in_memory(small_model) as lab:
        question = draw_question(
            random.Random(3), lab.words, lab.texts["documents"], window_tokens=WINDOW_TOKENS
        )
        other = replace(question, cut=replace(question.cut, dropped_count=1))
        with pytest.raises(BenchmarkError, match="cut elsewhere"):
            ask_by_talk(lab.talker, lab.teacher, "one", other)
