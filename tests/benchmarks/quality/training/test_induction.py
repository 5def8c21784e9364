"""A network that recalls before it is trained, and better soon after."""

import torch

from benchmarks.quality.training.batches import BatchShape
from benchmarks.quality.training.induction import plant_induction
from benchmarks.quality.training.recall import recall_by_length
from benchmarks.training.network import Llama, NetworkShape
from benchmarks.training.plan import Plan, Stage
from tests.benchmarks.training.small_training import draw, trainer_of
from tests.support.scale import Scale, at

SHAPE = NetworkShape(
    vocab_size=600,
    hidden_size=128,
    intermediate_size=128,
    layer_count=2,
    head_count=4,
    position_count=128,
)
QUESTIONS = BatchShape(
    sequence_count=16, recall_count=16, position_count=64, record_count=8, has_text=False
)
LONGER = BatchShape(sequence_count=8, recall_count=6, position_count=128, record_count=16)
PLAN = Plan(
    seed=20,
    stages=(Stage(step_count=15, batch=QUESTIONS), Stage(step_count=15, batch=LONGER)),
    warmup_steps=10,
)
CHANCES = {"64": 1 / 8, "128": 1 / 16}
"""Of who says any of the values in a sequence, by its length."""


def network(*, is_planted: bool) -> Llama:
    drawn = Llama(SHAPE, seed=1)
    if is_planted:
        plant_induction(drawn, seed=2)
    return drawn


@at(Scale.QUICK)
def test_recall_stands_in_the_first_weights() -> None:
    without = recall_by_length(network(is_planted=False), PLAN, draw)
    planted = recall_by_length(network(is_planted=True), PLAN, draw)
    assert list(planted) == list(without) == list(CHANCES)
    for positions, chance in CHANCES.items():
        assert without[positions] < chance
        assert planted[positions] > 2 * chance


@at(Scale.QUICK)
def test_weights_are_planted_from_the_seed() -> None:
    first, same = (network(is_planted=True).checkpoint() for _ in range(2))
    other = network(is_planted=False)
    plant_induction(other, seed=3)
    name = "model.layers.1.self_attn.q_proj.weight"
    assert torch.equal(first[name], same[name])
    assert not torch.equal(first[name], other.checkpoint()[name])


@at(Scale.QUICK)
def test_a_minute_of_training_finds_recall_at_both_lengths() -> None:
    trained = network(is_planted=True)
    trainer = trainer_of(trained, PLAN)
    while not trainer.is_over:
        trainer.make_step()
    shares = recall_by_length(trained, PLAN, draw)
    assert min(shares.values()) > 0.9
