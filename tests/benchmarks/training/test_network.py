"""What is trained is what the runner computes."""

from pathlib import Path

import pytest
import torch

from benchmarks.quality.bare_window import BareWindow
from benchmarks.training.network import Llama
from engine_adapters.runner.model.model import Model
from tests.benchmarks.quality.small import SHAPE, write_small_model


@pytest.fixture
def network() -> Llama:
    return Llama(SHAPE, seed=3)


def test_the_runner_computes_the_same_logits(network: Llama, tmp_path: Path) -> None:
    write_small_model(tmp_path, network)
    rounded = {f"weights.{name}": each for name, each in network.checkpoint().items()}
    network.load_state_dict(
        {name.replace(".", "/").replace("/", ".", 1): each for name, each in rounded.items()}
    )
    token_ids = list(range(5, 45))
    model = Model.from_directory(tmp_path, dtype=torch.float32)
    theirs = BareWindow(model, window_tokens=40).extend(token_ids)
    ours = network(torch.tensor([token_ids]))[0]
    assert torch.allclose(ours, theirs, atol=1e-4)
    assert ours.std() > 0.1


def test_only_the_wanted_logits_are_computed(network: Llama) -> None:
    inputs = torch.arange(40).view(2, 20)
    wanted = inputs % 7 == 0
    assert torch.allclose(network(inputs, wanted), network(inputs)[wanted], atol=1e-6)


def test_parameters_come_from_the_seed(network: Llama) -> None:
    same, other = Llama(SHAPE, seed=3).checkpoint(), Llama(SHAPE, seed=4).checkpoint()
    name = "model.layers.0.self_attn.q_proj.weight"
    assert torch.equal(network.checkpoint()[name], same[name])
    assert not torch.equal(network.checkpoint()[name], other[name])


def test_every_parameter_has_one_optimizer(network: Llama) -> None:
    both = [*network.matrices(), *network.others()]
    assert len(both) == len(set(map(id, both))) == len(list(network.parameters()))
    assert all(each.ndim == 2 for each in network.matrices())
