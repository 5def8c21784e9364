"""A training that is interrupted ends as one that is not."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.training.network import Llama
from benchmarks.training.plan import Stage
from benchmarks.training.trainer import SECONDS_MAX, Losses
from tests.benchmarks.quality.small import SHAPE
from tests.benchmarks.training.small_training import BATCH, PLAN, trainer_of


@pytest.fixture
def network() -> Llama:
    return Llama(SHAPE, seed=1)


def test_an_interrupted_training_ends_with_the_same_weights(network: Llama, tmp_path: Path) -> None:
    whole = trainer_of(network)
    steps: list[int] = []
    whole.run(SECONDS_MAX, lambda step, losses: steps.append(step))
    assert steps == [1, 2, 3, 4]
    assert whole.is_over

    begun = trainer_of(Llama(SHAPE, seed=1))
    assert not begun.load(tmp_path)
    begun.run(0.0, lambda step, losses: None)
    assert begun.step == 0
    begun.make_step()
    begun.make_step()
    begun.save(tmp_path)
    other = Llama(SHAPE, seed=2)
    resumed = trainer_of(other)
    assert resumed.load(tmp_path)
    assert resumed.step == 2
    resumed.run(SECONDS_MAX, lambda step, losses: None)
    for name, weights in network.checkpoint().items():
        assert torch.equal(other.checkpoint()[name], weights), name


def test_it_learns_what_follows(network: Llama) -> None:
    plan = replace(PLAN, stages=(Stage(step_count=30, batch=BATCH),))
    trainer = trainer_of(network, plan)
    losses: list[Losses] = []
    trainer.run(SECONDS_MAX, lambda step, found: losses.append(found))
    assert losses[-1].text < losses[0].text - 1


def test_the_time_is_bounded(network: Llama) -> None:
    trainer = trainer_of(network)
    trainer.seconds = SECONDS_MAX
    assert trainer.is_over


def test_batches_without_records_have_no_loss_of_recall(network: Llama) -> None:
    plan = replace(PLAN, stages=(Stage(step_count=1, batch=replace(BATCH, recall_count=0)),))
    losses = trainer_of(network, plan).make_step()
    assert losses.answers == losses.right_shares == (0,)


def test_batches_without_text_have_no_loss_of_text(network: Llama) -> None:
    losses = trainer_of(network).make_step()
    assert losses.text == 0
    assert losses.answers[0] > 1
