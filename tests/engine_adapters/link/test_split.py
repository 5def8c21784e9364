"""Splits of real documents: the pages of this project."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.link.split import (
    paragraphs,
    passages,
    sentences,
    split_fixed,
    split_text,
)

DOCS = Path(__file__).parents[3] / "docs"
PAGES = sorted(page for page in DOCS.glob("*.md") if page.name != "index.md")
"""Those that are long enough for passages."""
TEXTS = st.text(alphabet='aB .!?\n\t)"', max_size=60)


def test_a_fixed_count_of_tokens() -> None:
    assert split_fixed(range(7), 3) == [[0, 1, 2], [3, 4, 5], [6]]
    assert split_fixed((), 3) == []
    with pytest.raises(ValueError, match="at least one token, not 0"):
        split_fixed([1], 0)


def test_sentences_keep_the_space_after_them() -> None:
    text = 'One. "Two?" (Three!)  Four… 3.5 and v1.2\nfive\n\nA heading\n\nLast'
    assert sentences(text) == [
        "One. ",
        '"Two?" ',
        "(Three!)  ",
        "Four… ",
        "3.5 and v1.2\nfive\n\n",
        "A heading\n\n",
        "Last",
    ]


def test_paragraphs_keep_the_lines_after_them() -> None:
    assert paragraphs("a\nb\n\n\nc\n \nd\n") == ["a\nb\n\n\n", "c\n \n", "d\n"]
    assert paragraphs("") == sentences("") == []


def test_passages_gather_paragraphs_and_split_long_ones() -> None:
    text = "One two.\n\nThree.\n\nA longer one. It is split. Four.\n\n"
    assert passages(text, characters=20) == [
        "One two.\n\nThree.\n\n",
        "A longer one. ",
        "It is split. Four.\n\n",
    ]
    assert passages("A sentence that is too long.", characters=5) == [
        "A sentence that is too long."
    ]
    with pytest.raises(ValueError, match="at least one character"):
        passages(text, characters=0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documents_are_split_into_themselves(page: Path) -> None:
    text = page.read_text()
    by_sentence = split_text(text, sentences)
    by_paragraph = split_text(text, paragraphs)
    by_passage = split_text(text, lambda whole: passages(whole, characters=1500))
    assert len(by_sentence) > len(by_paragraph) > len(by_passage) > 1
    # Every paragraph begins where a sentence does.
    starts = {sum(map(len, by_sentence[:n])) for n in range(len(by_sentence))}
    assert {sum(map(len, by_paragraph[:n])) for n in range(len(by_paragraph))} <= starts


@given(TEXTS, st.integers(1, 30))
def test_no_split_loses_anything(text: str, characters: int) -> None:
    for splitter in (sentences, paragraphs, lambda whole: passages(whole, characters=characters)):
        pieces = list(splitter(text))
        assert "".join(pieces) == text
        assert all(pieces)
    gathered = passages(text, characters=characters)
    whole = set(sentences(text))
    assert all(len(one) <= characters or one in whole for one in gathered)


def test_a_split_of_the_users_own() -> None:
    assert split_text("a|b||", lambda text: text.replace("|", "|\0").split("\0")) == [
        "a|",
        "b|",
        "|",
    ]
    with pytest.raises(ValueError, match="are not the text"):
        split_text("a|b", lambda text: text.split("|"))
