"""Documents that tell facts, and questions that only they answer."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.pic.facts.library import (
    Kind,
    Library,
    LibraryShape,
    Signs,
    draw_library,
    write_document,
)

SIGNS = Signs(document=1, fact=2, chain=3, example=4, unknown=5)
WORDS = tuple(range(100, 300))
TEXT = [10 + number % 90 for number in range(2000)]
SHAPE = LibraryShape(
    document_counts=range(3, 6),
    document_tokens=range(30, 61),
    token_count=200,
    fact_count=4,
    chain_count=3,
    class_count=2,
    example_count=2,
    unknown_count=2,
)


def draw(seed: int, words: tuple[int, ...] = WORDS) -> Library:
    return draw_library(random.Random(seed), SIGNS, words, TEXT, SHAPE)


def told(library: Library, document_count: int) -> tuple[dict[int, int], dict[int, set[int]]]:
    """What the first documents say: values by key, and labels by class."""
    values: dict[int, int] = {}
    labels: dict[int, set[int]] = {}
    for document in library.documents[:document_count]:
        ids = document.token_ids
        for place, token in enumerate(ids):
            if token == SIGNS.fact:
                values[ids[place + 1]] = ids[place + 2]
            elif token == SIGNS.example:
                labels.setdefault(ids[place + 1], set()).add(ids[place + 3])
    return values, labels


@given(st.integers(0, 10_000))
def test_every_question_is_answered_by_what_was_read(seed: int) -> None:
    library = draw(seed)
    kinds = [question.kind for question in library.questions]
    # One fact of each chain is asked for alone.
    assert kinds.count(Kind.ONE_HOP) == 4 + 3
    assert kinds.count(Kind.TWO_HOPS) == 3
    assert kinds.count(Kind.FEW_SHOT) == 2 * 2
    assert kinds.count(Kind.UNKNOWN) == 2 * 3
    for question in library.questions:
        values, labels = told(library, question.last_document + 1)
        if question.kind is Kind.UNKNOWN:
            assert question.answer == SIGNS.unknown
            for word in question.prompt[1:]:
                assert all(word not in each.token_ids for each in library.documents)
        elif question.kind is Kind.FEW_SHOT:
            assert question.prompt[0] == SIGNS.example
            assert labels[question.prompt[1]] == {question.answer}
            assert all(question.prompt[2] not in each.token_ids for each in library.documents)
        elif question.kind is Kind.TWO_HOPS:
            assert question.prompt[0] == SIGNS.chain
            assert values[values[question.prompt[1]]] == question.answer
        else:
            assert question.prompt[0] == SIGNS.fact
            assert values[question.prompt[1]] == question.answer


@given(st.integers(0, 10_000))
def test_documents_have_their_sizes_and_say_what_is_text(seed: int) -> None:
    library = draw(seed)
    assert len(library.documents) in SHAPE.document_counts
    assert sum(len(each.token_ids) for each in library.documents) <= SHAPE.token_count
    for document in library.documents:
        assert 30 <= len(document.token_ids) <= 60
        assert document.token_ids[0] == SIGNS.document
        assert not document.is_text[0]
        for token, is_text in zip(document.token_ids, document.is_text, strict=True):
            assert is_text == (10 <= token < 100)


def test_words_of_the_text_are_in_no_fact() -> None:
    library = draw(7, words=tuple(range(50, 300)))
    texts = {
        token
        for each in library.documents
        for token, is_text in zip(each.token_ids, each.is_text, strict=True)
        if is_text
    }
    assert not texts & {question.answer for question in library.questions} - {SIGNS.unknown}


def test_too_few_words_are_an_error() -> None:
    with pytest.raises(ValueError, match="ample"):
        draw(1, words=WORDS[: SHAPE.word_count - 1])


def test_facts_alone_may_be_longer_than_the_text() -> None:
    facts = [(2, 100, 101), (2, 102, 103)]
    document = write_document(random.Random(1), SIGNS, [10, 11, 12], facts)
    assert sorted(document.token_ids) == sorted((1, *facts[0], *facts[1]))
    assert not any(document.is_text)


def test_signs_are_tokens_of_the_vocabulary() -> None:
    vocabulary = {"#": 1, ";": 2, ":": 3, "/": 4, "?": 5}
    assert Signs.of_vocabulary(vocabulary) == SIGNS
    with pytest.raises(KeyError):
        Signs.of_vocabulary({"#": 1})
