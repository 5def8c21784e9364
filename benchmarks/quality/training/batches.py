"""Training sequences of text and of records, each batch drawn from its own number."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.quality.records import Record, RecordWords

IGNORED = -100
"""A target that counts nowhere, as torch's cross entropy has it."""
RECORD_RUN = range(4, 33)
"""How many records come, or come again, in one go."""
TEXT_RUN = range(8, 129)
"""Tokens of text between them."""
RECORDS_MAX = 120
"""New ones in a sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchShape:
    """``recall_count`` of the ``sequence_count`` sequences have records between their text."""

    sequence_count: int
    recall_count: int
    position_count: int


@dataclass(frozen=True, slots=True)
class Batch:
    """``inputs`` and ``targets`` [sequences, positions], int64.

    Targets of records are the values of those that came before; all else of records is
    chance and IGNORED. ``recalled`` [sequences, positions], bool, says which targets these are.
    """

    inputs: Tensor
    targets: Tensor
    recalled: Tensor


def draw_batch(
    text: Tensor, words: RecordWords, shape: BatchShape, *, seed: int, number: int
) -> Batch:
    """The batch of this number: equal arguments give equal batches. ``text`` are token ids [n]."""
    generator = random.Random(f"{seed} {number}")
    length = shape.position_count + 1
    rows: list[list[int]] = []
    targets: list[list[int]] = []
    recalled: list[list[bool]] = []
    for index in range(shape.sequence_count):
        has_records = index < shape.recall_count
        drawn = (
            _Recall(text, words, generator, length)
            if has_records
            else _Sequence(text, generator, length)
        )
        rows.append(drawn.token_ids[: length - 1])
        targets.append(drawn.targets[1:length])
        recalled.append(drawn.recalled[1:length])
    return Batch(torch.tensor(rows), torch.tensor(targets), torch.tensor(recalled))


class _Sequence:
    """Text from a random place."""

    def __init__(self, text: Tensor, generator: random.Random, length: int) -> None:
        self._text = text
        self._generator = generator
        self.token_ids: list[int] = []
        self.targets: list[int] = []
        self.recalled: list[bool] = []
        self.tell(length)

    def tell(self, length: int) -> None:
        """Fills the sequence."""
        self.add_text(length)

    def add_text(self, count: int) -> None:
        """Text that counts as a target."""
        first = self._generator.randrange(len(self._text) - count)
        ids = self._text[first : first + count].tolist()
        self.token_ids += ids
        self.targets += ids
        self.recalled += [False] * count


class _Recall(_Sequence):
    """Runs of new records, of told ones in another order, and of text, in turn."""

    def __init__(
        self, text: Tensor, words: RecordWords, generator: random.Random, length: int
    ) -> None:
        self._words = words
        super().__init__(text, generator, length)

    def tell(self, length: int) -> None:
        """Every key has one value throughout."""
        unused = self._words.draw(self._generator, RECORDS_MAX)
        told = [unused.pop() for _ in range(self._generator.choice(RECORD_RUN))]
        self._add_records(told, are_known=False)
        while len(self.token_ids) < length:
            count = self._generator.choice(RECORD_RUN)
            match self._generator.randrange(4):
                case 0:
                    self.add_text(self._generator.choice(TEXT_RUN))
                case 1:
                    new = [unused.pop() for _ in range(min(count, len(unused)))]
                    self._add_records(new, are_known=False)
                    told += new
                case _:
                    known = self._generator.sample(told, min(count, len(told)))
                    self._add_records(known, are_known=True)

    def _add_records(self, records: Sequence[Record], *, are_known: bool) -> None:
        self.token_ids += self._words.write(records)
        for record in records:
            self.targets += [IGNORED, record.value if are_known else IGNORED, IGNORED]
            self.recalled += [False, are_known, False]
