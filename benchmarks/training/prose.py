"""Which paragraphs are English prose, each of them once. Pure."""

from collections.abc import Iterable, Iterator

PARAGRAPH_CHARACTERS_MIN = 60
PARAGRAPH_CHARACTERS_MAX = 4000
PLAIN_SHARE_MIN = 0.87
"""Of lower-case letters and spaces: code, tables and lists of names have less."""
WORD_CHARACTERS_MAX = 8.5
"""Letters of a word on average; what has more is no sentence."""
COMMON_SHARE_MIN = 0.2
"""Of the most common English words: a sentence without them is in another language or is a list."""
_COMMON = """
the of and to a in is that for it as be this with are not on or by an if can which will from at all
when has you used no but may any only should must other more than then there
"""
COMMON_WORDS = frozenset(_COMMON.split())


def is_prose(paragraph: str) -> bool:
    """Whether it looks like English sentences rather than code, tables or lists."""
    count = len(paragraph)
    if not PARAGRAPH_CHARACTERS_MIN <= count <= PARAGRAPH_CHARACTERS_MAX:
        return False
    plain = sum(character == " " or "a" <= character <= "z" for character in paragraph)
    words = paragraph.split()
    common = sum(word.lower() in COMMON_WORDS for word in words)
    return (
        paragraph.isascii()
        and plain >= PLAIN_SHARE_MIN * count
        and count <= WORD_CHARACTERS_MAX * len(words)
        and common >= COMMON_SHARE_MIN * len(words)
    )


def new_prose(paragraphs: Iterable[str], seen: set[str]) -> Iterator[str]:
    """Prose that is not among what was ``seen``, to which it is added."""
    for paragraph in paragraphs:
        if paragraph not in seen and is_prose(paragraph):
            seen.add(paragraph)
            yield paragraph
