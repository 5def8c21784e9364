"""Sentences of a Markdown document, and how many words each has."""

import re
from collections.abc import Iterator

WORDS_MAX = 30
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2\s*?$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")
_END = re.compile(r"(?<=[.!?])[)\"'*_]*\s+")


def sentences(text: str) -> Iterator[str]:
    """All of them, but those of code and tables; a heading or an item of a list ends one."""
    for paragraph in paragraphs(_FENCE.sub("", text)):
        plain = _LINK.sub(r"\1", _CODE.sub("code", paragraph))
        yield from (sentence for sentence in _END.split(plain) if sentence)


def paragraphs(text: str) -> Iterator[str]:
    """Lines that belong together, joined."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        is_apart = not line.strip() or line.lstrip().startswith(("#", "|", "<"))
        if (is_apart or _ITEM.match(line)) and lines:
            yield " ".join(lines)
            lines = []
        if not is_apart:
            lines.append(_ITEM.sub("", line).strip())


def long_sentences(text: str) -> list[str]:
    """Those of more than ``WORDS_MAX`` words."""
    return [one for one in sentences(text) if word_count(one) > WORDS_MAX]


def word_count(sentence: str) -> int:
    """Words, of which a piece of code is one; signs alone are none."""
    return sum(any(sign.isalnum() for sign in word) for word in sentence.split())
