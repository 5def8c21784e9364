"""Recall of records: words stand in pairs, and who has read them can tell the second of each. Pure.

A record is "; river seven" - three tokens. A question is "; river", so the right answer is what
followed it before. The separator comes first: without it, nothing would tell a question that
follows text from more text.
"""

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_WORD = re.compile(r"Ġ[a-z]{3,}")
"""A lower-case word with the space before it, as byte-level tokenizers write it."""
SEPARATOR = ";"
RECORD_TOKENS = 3
QUESTION_TOKENS = 2
WORDS_MAX = 256
"""More are not needed, and a small model learns few words sooner than many.

The last ones of a vocabulary are rare in text, so what a record says contradicts no habit.
"""


@dataclass(frozen=True, slots=True)
class RecordWords:
    """Token ids of which records are made: ``words`` ascending, and what begins a record."""

    words: tuple[int, ...]
    separator: int

    @classmethod
    def of_vocabulary(cls, vocabulary: Mapping[str, int]) -> "RecordWords":
        """Words of one token, the last ones; raises KeyError where there is no semicolon."""
        words = sorted(number for token, number in vocabulary.items() if _WORD.fullmatch(token))
        return cls(tuple(words[-WORDS_MAX:]), vocabulary[SEPARATOR])

    def without(self, token_ids: Iterable[int]) -> "RecordWords":
        """Those that are not among ``token_ids``."""
        left_out = frozenset(token_ids)
        return RecordWords(
            tuple(word for word in self.words if word not in left_out), self.separator
        )

    def draw(self, generator: random.Random, count: int) -> list["Record"]:
        """So many records with keys and values that are all different."""
        drawn = generator.sample(self.words, 2 * count)
        return [Record(*pair) for pair in zip(drawn[::2], drawn[1::2], strict=True)]

    def write(self, records: Sequence["Record"]) -> list[int]:
        """The tokens of the records, one after the other."""
        return [part for each in records for part in (*self.ask(each), each.value)]

    def ask(self, record: "Record") -> list[int]:
        """The tokens of a question."""
        return [self.separator, record.key]


@dataclass(frozen=True, slots=True)
class Record:
    """Two token ids: who reads ``key`` again should say ``value``."""

    key: int
    value: int
