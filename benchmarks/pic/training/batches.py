"""Training sequences: documents of a library, and questions with their answers.

Where all of it is longer than a sequence, the last questions are cut off.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from benchmarks.pic.facts.library import (
    Document,
    Kind,
    Library,
    LibraryShape,
    Question,
    Signs,
    draw_library,
    write_document,
)
from benchmarks.training.batch import IGNORED, TEXT, Batch

KINDS = {kind: number for number, kind in enumerate(Kind, start=1)}
"""The kinds of answers as a batch names them."""
END_SHARE = 0.5
"""Of the questions, how many come at the end; the others follow a document that tells them.

So each kind of question is met after text, too, as in a prompt that has only one.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
    """``sequence_count`` sequences, each of a library of its own; documents of text fill them."""

    sequence_count: int
    position_count: int
    library: LibraryShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What sequences are made of: ``text`` are token ids, ``filler`` is one that is no word."""

    signs: Signs
    words: Sequence[int]
    text: Sequence[int]
    filler: int


def draw_batch(sources: Sources, shape: BatchShape, *, seed: int, number: int) -> Batch:
    """The batch of this number: equal arguments give equal batches."""
    generator = random.Random(f"{seed} {number}")
    sequences = [_draw(sources, shape, generator) for _ in range(shape.sequence_count)]
    inputs = [each.token_ids[:-1] for each in sequences]
    targets = [each.targets[1:] for each in sequences]
    kinds = [each.kinds[1:] for each in sequences]
    return Batch(torch.tensor(inputs), torch.tensor(targets), torch.tensor(kinds))


def _draw(sources: Sources, shape: BatchShape, generator: random.Random) -> "_Sequence":
    library = draw_library(generator, sources.signs, sources.words, sources.text, shape.library)
    # One token more than positions: each position's target is the token after it.
    length = shape.position_count + 1
    asked = sum(len(question.prompt) + 1 for question in library.questions)
    documents = _fill(sources, library, length - asked, shape.library, generator)
    questions = _place(library, documents, generator)
    sequence = _Sequence()
    for document, after in zip(documents, questions, strict=True):
        sequence.add_document(document)
        for question in after:
            sequence.add(question.prompt)
            sequence.add((question.answer,), KINDS[question.kind])
    missing = length - len(sequence.token_ids)
    sequence.add_document(_text_document(sources, library, max(missing, 1), generator))
    sequence.cut(length)
    return sequence


def _fill(
    sources: Sources,
    library: Library,
    room: int,
    shape: LibraryShape,
    generator: random.Random,
) -> list[Document]:
    """The documents of the library in their order, others between; ``room`` tokens at most."""
    documents = list(library.documents)
    used = sum(len(document.token_ids) for document in documents)
    least, most = shape.document_tokens[0], shape.document_tokens[-1]
    while used + least <= room:
        size = min(generator.randint(least, most), room - used)
        other = _text_document(sources, library, size, generator)
        documents.insert(generator.randint(0, len(documents)), other)
        used += size
    return documents


def _place(
    library: Library, documents: Sequence[Document], generator: random.Random
) -> list[list[Question]]:
    """Which questions follow each of the documents."""
    places = [documents.index(document) for document in library.documents]
    after: list[list[Question]] = [[] for _ in documents]
    last = len(documents) - 1
    for question in library.questions:
        first = places[question.last_document]
        is_last = generator.random() < END_SHARE
        after[last if is_last else generator.randint(first, last)].append(question)
    return after


def _text_document(
    sources: Sources, library: Library, size: int, generator: random.Random
) -> Document:
    """Text alone, without words and signs of which the library's facts are made."""
    first = generator.randrange(len(sources.text) - size)
    told = {
        token
        for document in library.documents
        for token, is_text in zip(document.token_ids, document.is_text, strict=True)
        if not is_text
    }
    text = [
        sources.filler if token in told else token for token in sources.text[first : first + size]
    ]
    return write_document(generator, sources.signs, text)


class _Sequence:
    """Tokens, and what each of them is as a target."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.targets: list[int] = []
        self.kinds: list[int] = []

    def add(self, token_ids: Sequence[int], kind: int | None = None) -> None:
        """Tokens that are answers of a kind, or chance."""
        self.token_ids += token_ids
        self.targets += [IGNORED] * len(token_ids) if kind is None else token_ids
        self.kinds += [TEXT if kind is None else kind] * len(token_ids)

    def add_document(self, document: Document) -> None:
        """Its text counts."""
        self.token_ids += document.token_ids
        self.targets += [
            token if is_text else IGNORED
            for token, is_text in zip(document.token_ids, document.is_text, strict=True)
        ]
        self.kinds += [TEXT] * len(document.token_ids)

    def cut(self, length: int) -> None:
        """Keeps the first tokens."""
        for each in (self.token_ids, self.targets, self.kinds):
            del each[length:]
