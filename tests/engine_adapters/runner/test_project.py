"""Keys and values made from hidden states equal those of the forward pass."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from tests.engine_adapters.runner.checkpoints import write_llama, write_opt

TOKEN_COUNT = 90
EXACT = 1e-5
VARIANTS: dict[str, Callable[[Path], object]] = {
    "mha": lambda path: write_llama(path),
    "gqa": lambda path: write_llama(path, num_key_value_heads=2),
    "bias": lambda path: write_llama(path, num_key_value_heads=2, attention_bias=True),
    "opt": lambda path: write_opt(path),
}

MakeTokens = Callable[[int, int], list[int]]


class HiddenSink(NullSink):
    """Keeps the input of every layer: a list of [rows, hidden_size] for each step."""

    def __init__(self) -> None:
        self.steps: list[list[Tensor]] = []

    def begin_step(self, segments: Sequence[Segment]) -> None:
        self.steps.append([])

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        assert layer == len(self.steps[-1])
        assert len(hidden) == len(keys) == len(values)
        self.steps[-1].append(hidden.clone())

    def layer(self, layer: int) -> Tensor:
        """The layer's input of all tokens."""
        return torch.cat([step[layer] for step in self.steps])


@pytest.fixture(scope="module", params=VARIANTS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    directory = tmp_path_factory.mktemp(request.param)
    VARIANTS[request.param](directory)
    return Model.from_directory(directory)


def prefill(
    model: Model,
    token_ids: list[int],
    *,
    step_tokens: int = TOKEN_COUNT,
    layer_stop: int | None = None,
) -> tuple[KvCache, HiddenSink]:
    """Computes the tokens ``step_tokens`` at a time into slots from 0 on."""
    cache, sink = model.make_cache(len(token_ids)), HiddenSink()
    for first in range(0, len(token_ids), step_tokens):
        part = token_ids[first : first + step_tokens]
        segment = Segment(
            request_id=0, first_row=0, token_count=len(part), first_position=first, first_slot=0
        )
        model.forward(part, [segment], cache=cache, sink=sink, logit_rows=(), layer_stop=layer_stop)
    return cache, sink


@pytest.mark.parametrize("step_tokens", [TOKEN_COUNT, 17, 1])
def test_projection_equals_the_forward_pass(
    step_tokens: int, model: Model, make_tokens: MakeTokens
) -> None:
    computed, sink = prefill(model, make_tokens(TOKEN_COUNT, 1), step_tokens=step_tokens)
    restored = model.make_cache(TOKEN_COUNT)
    for layer in range(model.config.layer_count):
        hidden = sink.layer(layer)
        for first, stop in ((0, 40), (40, TOKEN_COUNT)):
            model.project(
                layer,
                hidden[first:stop],
                first_position=first,
                keys=restored.keys[layer, first:stop],
                values=restored.values[layer, first:stop],
            )
    assert computed.keys.std() > 0.1
    assert (restored.keys - computed.keys).abs().max() < EXACT
    assert (restored.values - computed.values).abs().max() < EXACT


def test_results_may_lie_apart(model: Model, make_tokens: MakeTokens) -> None:
    computed, sink = prefill(model, make_tokens(TOKEN_COUNT, 2))
    heads = (model.config.kv_head_count, model.config.head_dim)
    apart = torch.zeros(TOKEN_COUNT, 2, *heads)
    model.project(1, sink.layer(1), first_position=0, keys=apart[:, 0], values=apart[:, 1])
    assert (apart[:, 0] - computed.keys[1]).abs().max() < EXACT
    assert (apart[:, 1] - computed.values[1]).abs().max() < EXACT


def test_results_that_could_only_be_copied_are_refused(model: Model) -> None:
    config = model.config
    hidden = torch.zeros(3, config.hidden_size)
    keys = torch.zeros(3, config.kv_head_count, config.head_dim)
    values = torch.zeros(3, config.head_dim, config.kv_head_count).transpose(1, 2)
    if config.kv_head_count > 1:
        with pytest.raises(RuntimeError):
            model.project(0, hidden, first_position=0, keys=keys, values=values)


@pytest.mark.parametrize("layer_stop", [0, 1, 2, 3])
def test_the_first_layers_alone_are_the_same(
    layer_stop: int, model: Model, make_tokens: MakeTokens
) -> None:
    token_ids = make_tokens(TOKEN_COUNT, 3)
    whole, _ = prefill(model, token_ids, step_tokens=32)
    first, sink = prefill(model, token_ids, step_tokens=32, layer_stop=layer_stop)
    assert [len(step) for step in sink.steps] == [layer_stop] * 3
    assert torch.equal(first.keys[:layer_stop], whole.keys[:layer_stop])
    assert torch.equal(first.values[:layer_stop], whole.values[:layer_stop])
    assert not first.keys[layer_stop:].any()
    assert not first.values[layer_stop:].any()


def test_the_first_layers_give_no_logits(model: Model) -> None:
    segment = Segment(request_id=0, first_row=0, token_count=2, first_position=0, first_slot=0)
    cache = model.make_cache(2)

    def run(logit_rows: list[int], layer_stop: int) -> Tensor:
        return model.forward(
            [1, 2],
            [segment],
            cache=cache,
            sink=NullSink(),
            logit_rows=logit_rows,
            layer_stop=layer_stop,
        )

    assert run([], 2).shape == (0, model.config.vocab_size)
    for logit_rows, layer_stop in (([1], 2), ([], 4), ([], -1)):
        with pytest.raises(ValueError, match="layer_stop must be 0 to 3 and without logit_rows"):
            run(logit_rows, layer_stop)
