"""Documents that tell facts between text, and questions about them. Pure.

A fact is three or four tokens: "; river seven" tells what belongs to "river", and "/ stone river
blue" is an example of what belongs to things with "stone". Questions are facts without their last
token, which is the answer:

* one hop: "; river";
* two hops: ": river" asks what belongs to what belongs to "river", which two documents tell;
* few-shot: "/ stone lake" is answered as the examples with "stone" are, of which there is none with
  "lake";
* unknown: a question of one of these forms that no document answers. "?" is right.

Every document begins with the same token, as passages of a prompt do.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

FEW_SHOT_QUESTIONS = 2
"""Of each class."""


class Kind(StrEnum):
    """What it takes to answer."""

    ONE_HOP = "one_hop"
    TWO_HOPS = "two_hops"
    FEW_SHOT = "few_shot"
    UNKNOWN = "unknown"


TOLD_KINDS = (Kind.ONE_HOP, Kind.TWO_HOPS, Kind.FEW_SHOT)
"""What documents answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """The tokens that begin a document, facts and questions of one hop, of two, and examples.

    ``unknown`` answers what no document tells.
    """

    document: int
    fact: int
    chain: int
    example: int
    unknown: int

    @classmethod
    def of_vocabulary(cls, vocabulary: Mapping[str, int]) -> "Signs":
        """Raises KeyError where one of them is missing."""
        document, fact, chain, example, unknown = (vocabulary[sign] for sign in "#;:/?")
        return cls(document=document, fact=fact, chain=chain, example=example, unknown=unknown)


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryShape:
    """Sizes of a library.

    As many documents as one of ``document_counts`` share ``token_count`` tokens, each at least the
    first and at most the last of ``document_tokens``. They tell ``fact_count`` facts of one hop,
    ``chain_count`` chains of two, and ``example_count`` examples for each class of
    ``class_count``; ``unknown_count`` questions of each form cannot be answered.
    """

    document_counts: range
    document_tokens: range
    token_count: int
    fact_count: int
    chain_count: int
    class_count: int
    example_count: int
    unknown_count: int

    @property
    def word_count(self) -> int:
        """Words of a library, all of them different."""
        of_class = 2 + self.example_count + FEW_SHOT_QUESTIONS
        told = 2 * self.fact_count + 3 * self.chain_count + of_class * self.class_count
        # Questions by class have two words.
        return told + 4 * self.unknown_count


JUDGED = LibraryShape(
    document_counts=range(8, 17),
    document_tokens=range(48, 97),
    token_count=928,
    fact_count=10,
    chain_count=8,
    class_count=4,
    example_count=3,
    unknown_count=4,
)
"""Libraries that links are judged with."""


@dataclass(frozen=True, slots=True)
class Document:
    """``token_ids``, and which of them are text; all others belong to facts or begin it."""

    token_ids: tuple[int, ...]
    is_text: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """``prompt`` asks; the next token should be ``answer``.

    All that tells it has been read with the document of number ``last_document``, from 0.
    """

    kind: Kind
    prompt: tuple[int, ...]
    answer: int
    last_document: int


@dataclass(frozen=True, slots=True)
class Library:
    """Documents in the order in which they are read, and what can be asked, in any order."""

    documents: tuple[Document, ...]
    questions: tuple[Question, ...]


def draw_library(
    generator: random.Random,
    signs: Signs,
    words: Sequence[int],
    text: Sequence[int],
    shape: LibraryShape,
) -> Library:
    """A library whose ``words`` come up nowhere in its pieces of ``text``.

    Raises ValueError where there are too few other words.
    """
    count = generator.choice(shape.document_counts)
    size_max = min(shape.document_tokens[-1], shape.token_count // count)
    sizes = [generator.randint(shape.document_tokens[0], size_max) for _ in range(count)]
    texts = [_piece(generator, text, size) for size in sizes]
    read = {token for piece in texts for token in piece}
    unread = [word for word in words if word not in read]
    drawn = _Draw(signs, iter(generator.sample(unread, shape.word_count)), generator)
    drawn.add_facts(shape.fact_count)
    drawn.add_chains(shape.chain_count)
    drawn.add_classes(shape.class_count, shape.example_count)
    drawn.add_unknown(shape.unknown_count)
    generator.shuffle(drawn.facts)
    generator.shuffle(drawn.asked)
    documents = [
        write_document(generator, signs, piece, drawn.facts[number::count])
        for number, piece in enumerate(texts)
    ]
    places = {fact: number % count for number, fact in enumerate(drawn.facts)}
    questions = [
        Question(
            each.kind,
            each.prompt,
            each.answer,
            max((places[fact] for fact in each.facts), default=0),
        )
        for each in drawn.asked
    ]
    return Library(tuple(documents), tuple(questions))


def write_document(
    generator: random.Random,
    signs: Signs,
    text: Sequence[int],
    facts: Sequence[Sequence[int]] = (),
) -> Document:
    """As many tokens as ``text`` has, of which the facts and the first token replace the last.

    It is longer where the facts alone are.
    """
    left = max(0, len(text) - 1 - sum(map(len, facts)))
    places = sorted(generator.randrange(left + 1) for _ in facts)
    token_ids, is_text, done = [signs.document], [False], 0
    for place, fact in zip(places, facts, strict=True):
        token_ids += (*text[done:place], *fact)
        is_text += [True] * (place - done) + [False] * len(fact)
        done = place
    token_ids += text[done:left]
    is_text += [True] * (left - done)
    return Document(tuple(token_ids), tuple(is_text))


Fact = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question, and the facts that tell its answer."""

    kind: Kind
    prompt: tuple[int, ...]
    answer: int
    facts: tuple[Fact, ...]


class _Draw:
    """Facts and questions, of words that come one after the other."""

    def __init__(self, signs: Signs, words: Iterator[int], generator: random.Random) -> None:
        self._signs = signs
        self._words = words
        self._generator = generator
        self.facts: list[Fact] = []
        self.asked: list[_Asked] = []

    def add_facts(self, count: int) -> None:
        for _ in range(count):
            fact = self._fact(next(self._words), next(self._words))
            self.facts.append(fact)
            self._ask_hop(fact)

    def add_chains(self, count: int) -> None:
        """Of each, one of its two facts is asked for alone as well."""
        for _ in range(count):
            first, middle, last = (next(self._words) for _ in range(3))
            facts = self._fact(first, middle), self._fact(middle, last)
            self.facts += facts
            self._ask_hop(self._generator.choice(facts))
            prompt = self._signs.chain, first
            self.asked.append(_Asked(Kind.TWO_HOPS, prompt, last, facts))

    def add_classes(self, count: int, example_count: int) -> None:
        for _ in range(count):
            name, label = next(self._words), next(self._words)
            examples = tuple(
                (self._signs.example, name, next(self._words), label) for _ in range(example_count)
            )
            self.facts += examples
            for _ in range(FEW_SHOT_QUESTIONS):
                prompt = self._signs.example, name, next(self._words)
                self.asked.append(_Asked(Kind.FEW_SHOT, prompt, label, examples))

    def add_unknown(self, count: int) -> None:
        """Of each form so many."""
        signs, words = self._signs, self._words
        for _ in range(count):
            for prompt in (
                (signs.fact, next(words)),
                (signs.chain, next(words)),
                (signs.example, next(words), next(words)),
            ):
                self.asked.append(_Asked(Kind.UNKNOWN, prompt, signs.unknown, ()))

    def _fact(self, key: int, value: int) -> Fact:
        return self._signs.fact, key, value

    def _ask_hop(self, fact: Fact) -> None:
        self.asked.append(_Asked(Kind.ONE_HOP, fact[:-1], fact[-1], (fact,)))


def _piece(generator: random.Random, text: Sequence[int], count: int) -> Sequence[int]:
    first = generator.randrange(len(text) - count)
    return text[first : first + count]
