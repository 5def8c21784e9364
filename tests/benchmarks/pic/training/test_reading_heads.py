"""A network that answers before it is trained, and looks at the first token otherwise."""

import torch

from benchmarks.pic.facts.attention import WatchedLlama, attention_to_first_tokens
from benchmarks.pic.training.answered import answered_by_kind
from benchmarks.pic.training.batches import BatchShape, draw_batch
from benchmarks.pic.training.reading_heads import plant_reading
from benchmarks.training.batch import Batch
from benchmarks.training.network import Llama
from benchmarks.training.trainer import Trainer
from tests.benchmarks.pic.training.small_reading import LIBRARY, PLAN, SHAPE, SOURCES
from tests.support.scale import Scale, at

DOCUMENTS = [[1, 50, 51, 52, 2, 100, 101, 53], [1, 54, 55, 2, 102, 103, 56, 57]]


def planted(network: Llama, seed: int = 2) -> Llama:
    plant_reading(network, sink_id=SOURCES.signs.document, seed=seed)
    return network


def test_weights_are_planted_from_the_seed() -> None:
    first, same = (planted(Llama(SHAPE, seed=1)).checkpoint() for _ in range(2))
    other = planted(Llama(SHAPE, seed=1), seed=3).checkpoint()
    name = "model.layers.1.self_attn.q_proj.weight"
    assert torch.equal(first[name], same[name])
    assert not torch.equal(first[name], other[name])


def test_nothing_to_find_leads_to_the_first_token_and_a_match_away_from_it() -> None:
    network = WatchedLlama(SHAPE, seed=1)
    planted(network)
    looks = {}
    for key in (100, 300):
        attention_to_first_tokens(network, DOCUMENTS, [2, key], is_naive=False)
        # Of the last token in the second layer, to the first one.
        looks[key] = float(network.seen[1][-1, 0])
    assert looks[300] > looks[100]
    assert looks[300] > 0.3


def test_documents_of_their_own_each_have_such_a_token() -> None:
    network = WatchedLlama(SHAPE, seed=1)
    planted(network)
    plain, naive = (
        attention_to_first_tokens(network, DOCUMENTS, [2, 300], is_naive=is_naive)
        for is_naive in (False, True)
    )
    assert naive[1, 1] > 3 * plain[1, 1]


@at(Scale.QUICK)
def test_a_minute_of_training_answers_all_kinds() -> None:
    network = planted(Llama(SHAPE, seed=1))
    before = answered_by_kind(network, SOURCES, LIBRARY, seed=5)

    def draw(shape: BatchShape, number: int) -> Batch:
        return draw_batch(SOURCES, shape, seed=1, number=number)

    trainer = Trainer(network, PLAN, draw, answer_kinds=4)
    while not trainer.is_over:
        trainer.make_step()
    after = answered_by_kind(network, SOURCES, LIBRARY, seed=5)
    assert set(before) == set(after) == {"one_hop", "two_hops", "few_shot", "unknown"}
    assert sum(after.values()) > sum(before.values()) + 1
    assert after["one_hop"] > 0.8
