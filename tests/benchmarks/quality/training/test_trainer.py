"""A training that is interrupted ends as one that is not."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models

from benchmarks.quality.records import RecordWords
from benchmarks.quality.training.batches import BatchShape
from benchmarks.quality.training.network import Llama
from benchmarks.quality.training.plan import Plan, Stage
from benchmarks.quality.training.prepared import Prepared
from benchmarks.quality.training.trainer import SECONDS_MAX, Losses, Trainer
from tests.benchmarks.quality.small import SHAPE

BATCH = BatchShape(sequence_count=2, recall_count=1, position_count=128, record_count=20)
QUESTIONS = BatchShape(
    sequence_count=4, recall_count=4, position_count=48, record_count=8, has_text=False
)
PLAN = Plan(
    stages=(Stage(step_count=1, batch=QUESTIONS), Stage(step_count=3, batch=BATCH)),
    warmup_steps=1,
)
PREPARED = Prepared(
    tokenizer=Tokenizer(models.BPE()),
    tokens=torch.arange(3000) % 50,
    words=RecordWords(tuple(range(50, 500)), 500),
    sources={},
)


@pytest.fixture
def network() -> Llama:
    return Llama(SHAPE, seed=1)


def test_an_interrupted_training_ends_with_the_same_weights(network: Llama, tmp_path: Path) -> None:
    whole = Trainer(network, PLAN, PREPARED)
    steps: list[int] = []
    whole.run(SECONDS_MAX, lambda step, losses: steps.append(step))
    assert steps == [1, 2, 3, 4]
    assert whole.is_over

    begun = Trainer(Llama(SHAPE, seed=1), PLAN, PREPARED)
    assert not begun.load(tmp_path)
    begun.run(0.0, lambda step, losses: None)
    assert begun.step == 0
    begun.make_step()
    begun.make_step()
    begun.save(tmp_path)
    other = Llama(SHAPE, seed=2)
    resumed = Trainer(other, PLAN, PREPARED)
    assert resumed.load(tmp_path)
    assert resumed.step == 2
    resumed.run(SECONDS_MAX, lambda step, losses: None)
    for name, weights in network.checkpoint().items():
        assert torch.equal(other.checkpoint()[name], weights), name


def test_it_learns_what_follows(network: Llama) -> None:
    plan = replace(PLAN, stages=(Stage(step_count=30, batch=BATCH),))
    trainer = Trainer(network, plan, PREPARED)
    losses: list[Losses] = []
    trainer.run(SECONDS_MAX, lambda step, found: losses.append(found))
    assert losses[-1].text < losses[0].text - 1


def test_the_time_is_bounded(network: Llama) -> None:
    trainer = Trainer(network, PLAN, PREPARED)
    trainer.seconds = SECONDS_MAX
    assert trainer.is_over


def test_batches_without_records_have_no_loss_of_recall(network: Llama) -> None:
    plan = replace(PLAN, stages=(Stage(step_count=1, batch=replace(BATCH, recall_count=0)),))
    losses = Trainer(network, plan, PREPARED).make_step()
    assert losses.recall == losses.recalled_share == 0


def test_batches_without_text_have_no_loss_of_text(network: Llama) -> None:
    losses = Trainer(network, PLAN, PREPARED).make_step()
    assert losses.text == 0
    assert losses.recall > 1
