"""How the repository is written: plain words, short sentences."""

import re

import pytest

from tests.tidy import exceptions
from tests.tidy.sentences import WORDS_MAX, long_sentences, sentences, word_count
from tests.tidy.shrinking import faults
from tests.tidy.sources import ROOT, product_files, text_of
from tests.tidy.words import AVOIDED, count, documents

NEVER = {
    r"\bblob\b": "chunk",
    r"\bpage_size\b": "block (the engine's) or chunk (ours)",
    r"\bttl_sec\b": "units are spelled _s or _ms",
    r"\bTODO\b|\bFIXME\b|\bXXX\b|\bHACK\b": "finish it, or open an issue",
}


@pytest.mark.parametrize("pattern", NEVER)
def test_vocabulary(pattern: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in product_files()
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if re.search(pattern, line)
    ]
    assert found == [], NEVER[pattern]


@pytest.mark.parametrize(
    ("word", "pattern"), list(zip(exceptions.WORDS, AVOIDED, strict=True)), ids=exceptions.WORDS
)
def test_words_to_avoid_become_fewer(word: str, pattern: str) -> None:
    assert faults(count(pattern), exceptions.WORDS[word]) == [], AVOIDED[pattern]


def test_long_sentences_of_documents_become_fewer() -> None:
    found = {
        str(path.relative_to(ROOT)): len(long_sentences(path.read_text())) for path in documents()
    }
    assert faults(found, exceptions.LONG_SENTENCES) == [], f"at most {WORDS_MAX} words"


@pytest.mark.parametrize(
    ("text", "is_time"),
    [
        ("behind a restart", True),
        ("behind\nthe last commit", True),
        ("behind an unclean stop", True),
        ("behind which no", False),
        ("behind the slab's header", False),
        ("the step behind it", False),
        ("the last one behind each.", True),
        ("behind ``take_report``", True),
        ("behind ``position``", False),
        ("behind the meeting", False),
    ],
)
def test_behind_is_for_places(text: str, *, is_time: bool) -> None:
    *_, pattern = AVOIDED
    assert bool(re.search(pattern, text)) is is_time


@pytest.mark.parametrize(
    ("text", "is_avoided"),
    [
        ("the daemon was told to stop", True),
        ("what is\ntold later", True),
        ("they cannot be told apart", False),
        ("unless told otherwise", False),
    ],
)
def test_who_tells_is_said(text: str, *, is_avoided: bool) -> None:
    *_, pattern, _ = AVOIDED
    assert bool(re.search(pattern, text)) is is_avoided


def test_sentences_of_a_document() -> None:
    text = (
        "# A title\nOne `two three` [four](five/six)\nseven. (Eight. Nine.)\n\n"
        "- an item\n- another:\n  its rest\n\n| a | table |\n```\ncode here\n```\n1. a last one\n"
    )
    assert list(sentences(text)) == [
        "One code four seven.",
        "(Eight.",
        "Nine.)",
        "an item",
        "another: its rest",
        "a last one",
    ]
    assert word_count("one - code, two") == 3
