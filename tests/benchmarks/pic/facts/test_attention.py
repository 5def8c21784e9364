"""Where the attention of a prompt goes."""

import torch

from benchmarks.pic.facts.attention import WatchedLlama, attention_to_first_tokens
from benchmarks.training.network import Llama
from tests.benchmarks.quality.small import SHAPE

DOCUMENTS = [[5, 6, 7, 8], [9, 10, 11], [12, 13, 14, 15, 16]]
PROMPT = [17, 18]


def test_it_computes_what_a_network_does() -> None:
    network = WatchedLlama(SHAPE, seed=3)
    inputs = torch.arange(30).view(1, 30)
    network.mask = torch.ones(30, 30, dtype=torch.bool).tril()
    assert torch.allclose(network(inputs), Llama(SHAPE, seed=3)(inputs), atol=1e-5)
    assert len(network.seen) == SHAPE.layer_count
    for seen in network.seen:
        assert torch.allclose(seen.sum(-1), torch.ones(30), atol=1e-5)


def test_shares_are_those_of_first_tokens() -> None:
    network = WatchedLlama(SHAPE, seed=3)
    shares = attention_to_first_tokens(network, DOCUMENTS, PROMPT, is_naive=False)
    assert shares.shape == (SHAPE.layer_count, 3)
    expected = torch.stack([seen[:, [0, 4, 7]].mean(0) for seen in network.seen])
    assert torch.equal(shares, expected)
    # A document sees those before it.
    assert network.seen[0][5, 0] > 0


def test_naive_documents_do_not_see_one_another_but_the_question_sees_all() -> None:
    network = WatchedLlama(SHAPE, seed=3)
    shares = attention_to_first_tokens(network, DOCUMENTS, PROMPT, is_naive=True)
    assert (shares > 0).all()
    for seen in network.seen:
        assert not seen[4:7, :4].any()
        assert not seen[7:12, :7].any()
        assert seen[12].count_nonzero() == 13
