"""Sequences of text and of records."""

import torch

from benchmarks.quality.records import RecordWords
from benchmarks.quality.training.batches import RECALLED, BatchShape, draw_batch
from benchmarks.training.batch import IGNORED

WORDS = RecordWords(tuple(range(1000, 1400)), 1400)
TEXT = torch.arange(900)
SHAPE = BatchShape(sequence_count=4, recall_count=2, position_count=256, record_count=40)


def test_a_batch_depends_on_its_number_alone() -> None:
    first, same, other = (draw_batch(TEXT, WORDS, SHAPE, seed=1, number=n) for n in (3, 3, 4))
    assert torch.equal(first.inputs, same.inputs)
    assert torch.equal(first.targets, same.targets)
    assert not torch.equal(first.inputs, other.inputs)


def test_text_foretells_the_next_token() -> None:
    batch = draw_batch(TEXT, WORDS, SHAPE, seed=1, number=0)
    assert batch.inputs.shape == batch.targets.shape == batch.kinds.shape == (4, 256)
    assert torch.equal(batch.targets[2:], batch.inputs[2:] + 1)
    assert not batch.kinds[2:].any()


def test_a_recalled_value_was_told_before() -> None:
    batch = draw_batch(TEXT, WORDS, SHAPE, seed=1, number=0)
    assert (batch.kinds[:2] == RECALLED).any(dim=1).all()
    for inputs, targets, kinds in zip(
        batch.inputs[:2].tolist(), batch.targets[:2].tolist(), batch.kinds[:2], strict=True
    ):
        for position in (kinds == RECALLED).nonzero().flatten().tolist():
            told = inputs.index(inputs[position])
            assert told < position
            assert inputs[told + 1] == targets[position]


def test_without_text_there_are_only_records() -> None:
    shape = BatchShape(
        sequence_count=8, recall_count=8, position_count=60, record_count=4, has_text=False
    )
    batch = draw_batch(TEXT, WORDS, shape, seed=1, number=0)
    assert (batch.inputs >= 1000).all()
    for inputs, kinds in zip(batch.inputs.tolist(), batch.kinds, strict=True):
        assert inputs[::3] == [WORDS.separator] * 20
        assert len(set(inputs[1::3])) <= 4
        # Few records in many places: most of a sequence are questions.
        assert (kinds == RECALLED).sum() >= 16


def test_what_is_chance_is_no_target() -> None:
    batch = draw_batch(TEXT, WORDS, SHAPE, seed=1, number=0)
    is_record = batch.targets >= 1000
    assert torch.equal(is_record, batch.kinds == RECALLED)
    assert (batch.targets[:2] == IGNORED).any()
