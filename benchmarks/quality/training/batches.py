"""Training sequences of text and of records, each batch drawn from its own number."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.quality.records import Record, RecordWords
from benchmarks.training.batch import IGNORED, TEXT, Batch

RECALLED = 1
"""The kind of targets that are values of records told before."""
RUNS = (1, 2, 4, 8, 16, 32)
"""How many records come, or come again, in one go."""
TEXT_RUN = range(8, 129)
"""Tokens of text between them."""
NEW_SHARE = 0.3
"""Of the runs, as long as there are new records."""
TEXT_SHARE = 0.3
"""Of the other runs, where there is text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
    """``recall_count`` of the ``sequence_count`` sequences have up to ``record_count`` records.

    ``has_text`` says whether there is text between these. All other sequences are text.
    """

    sequence_count: int
    recall_count: int
    position_count: int
    record_count: int
    has_text: bool = True


def draw_batch(
    text: Tensor, words: RecordWords, shape: BatchShape, *, seed: int, number: int
) -> Batch:
    """The batch of this number: equal arguments give equal batches. ``text`` are token ids [n].

    Targets of records are the values of those that came before; all else of records is chance.
    """
    generator = random.Random(f"{seed} {number}")
    length = shape.position_count + 1
    rows: list[list[int]] = []
    targets: list[list[int]] = []
    kinds: list[list[int]] = []
    for index in range(shape.sequence_count):
        drawn = _Sequence(text, generator)
        if index < shape.recall_count:
            drawn.add_recall(words, shape, length)
        else:
            drawn.add_text(length)
        rows.append(drawn.token_ids[: length - 1])
        targets.append(drawn.targets[1:length])
        kinds.append(drawn.kinds[1:length])
    return Batch(torch.tensor(rows), torch.tensor(targets), torch.tensor(kinds))


class _Sequence:
    """Tokens, and what each of them is as a target."""

    def __init__(self, text: Tensor, generator: random.Random) -> None:
        self._text = text
        self._generator = generator
        self.token_ids: list[int] = []
        self.targets: list[int] = []
        self.kinds: list[int] = []

    def add_text(self, count: int) -> None:
        """Text from a random place, which counts as a target."""
        first = self._generator.randrange(len(self._text) - count)
        ids = self._text[first : first + count].tolist()
        self.token_ids += ids
        self.targets += ids
        self.kinds += [TEXT] * count

    def add_recall(self, words: RecordWords, shape: BatchShape, length: int) -> None:
        """Runs of new records, of told ones in another order, and of text, up to ``length``.

        Every key has one value throughout.
        """
        unused = words.draw(self._generator, shape.record_count)
        told: list[Record] = []
        while len(self.token_ids) < length:
            count = self._generator.choice(RUNS)
            if unused and (not told or self._generator.random() < NEW_SHARE):
                new = [unused.pop() for _ in range(min(count, len(unused)))]
                self._add_records(words, new, are_known=False)
                told += new
            elif shape.has_text and self._generator.random() < TEXT_SHARE:
                self.add_text(self._generator.choice(TEXT_RUN))
            else:
                known = self._generator.sample(told, min(count, len(told)))
                self._add_records(words, known, are_known=True)

    def _add_records(
        self, words: RecordWords, records: Sequence[Record], *, are_known: bool
    ) -> None:
        self.token_ids += words.write(records)
        for record in records:
            self.targets += [IGNORED, IGNORED, record.value if are_known else IGNORED]
            self.kinds += [TEXT, TEXT, RECALLED if are_known else TEXT]
