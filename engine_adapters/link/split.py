"""Splits documents into texts, or tokens, that are entries of their own (EPIC, KVSplit). Pure."""

import re
from collections.abc import Callable, Iterable, Sequence

Splitter = Callable[[str], Iterable[str]]
"""Gives the pieces of a text, which are the whole text when they are put together."""

_SENTENCE = re.compile(
    r".*?(?:[.!?\u2026]+[\"'\u201d\u2019)\]]*(?=\s|\Z)|\n\s*\n|\Z)\s*", re.DOTALL
)
_PARAGRAPH = re.compile(r".*?(?:\n[ \t]*\n\s*|\Z)", re.DOTALL)


def split_fixed(token_ids: Sequence[int], token_count: int) -> list[list[int]]:
    """Chunks of ``token_count`` tokens, the last one with what is left.

    Raises ValueError for less than one token.
    """
    if token_count < 1:
        raise ValueError(f"a chunk has at least one token, not {token_count}")
    return [
        list(token_ids[first : first + token_count])
        for first in range(0, len(token_ids), token_count)
    ]


def sentences(text: str) -> list[str]:
    """The sentences of a text, each with the space after it.

    A sentence ends with a full stop, a question mark or an exclamation mark before a space, or
    with its paragraph. Abbreviations end one, too.
    """
    return [found for found in _SENTENCE.findall(text) if found]


def paragraphs(text: str) -> list[str]:
    """The paragraphs of a text, each with the empty lines after it."""
    return [found for found in _PARAGRAPH.findall(text) if found]


def passages(text: str, *, characters: int) -> list[str]:
    """Paragraphs gathered up to ``characters`` each; a longer paragraph is split by sentences.

    A longer sentence stays whole. Raises ValueError for less than one character.
    """
    if characters < 1:
        raise ValueError(f"a passage has at least one character, not {characters}")
    found: list[str] = []
    for paragraph in paragraphs(text):
        parts = [paragraph] if len(paragraph) <= characters else sentences(paragraph)
        for part in parts:
            if found and len(found[-1]) + len(part) <= characters:
                found[-1] += part
            else:
                found.append(part)
    return found


def split_text(text: str, splitter: Splitter) -> list[str]:
    """What ``splitter`` makes of a text, without empty pieces; it may be the user's own.

    Raises ValueError where the pieces are not the whole text.
    """
    found = [piece for piece in splitter(text) if piece]
    if "".join(found) != text:
        raise ValueError("the pieces of a split, put together, are not the text that was split")
    return found
