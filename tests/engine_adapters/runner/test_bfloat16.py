"""Restoring in bfloat16 changes states by no more than another batch shape of prefill does."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.model_config import Family
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from tests.engine_adapters.runner.test_project import HiddenSink, MakeTokens, prefill

TOKEN_COUNT = 300
MHA = RandomModelShape(
    vocab_size=300,
    hidden_size=256,
    intermediate_size=384,
    layer_count=4,
    head_count=4,
    kv_head_count=4,
    position_count=512,
)
SHAPES = {
    "mha": MHA,
    "gqa": replace(MHA, kv_head_count=2),
    "opt": replace(MHA, family=Family.OPT),
}


def difference(first: KvCache, second: KvCache) -> float:
    """The largest difference of any key or value."""
    pairs = ((first.keys, second.keys), (first.values, second.values))
    return max((one.float() - other.float()).abs().max().item() for one, other in pairs)


def project_all(model: Model, sink: HiddenSink, step_tokens: int) -> KvCache:
    """A cache that is made from hidden states, ``step_tokens`` at a time."""
    cache = model.make_cache(TOKEN_COUNT)
    for layer in range(model.config.layer_count):
        hidden = sink.layer(layer)
        for first in range(0, TOKEN_COUNT, step_tokens):
            tokens = slice(first, min(first + step_tokens, TOKEN_COUNT))
            model.project(
                layer,
                hidden[tokens],
                first_position=first,
                keys=cache.keys[layer, tokens],
                values=cache.values[layer, tokens],
            )
    return cache


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", SHAPES)
def test_restored_states_are_as_near_as_those_of_another_batch_shape(
    name: str,
    device: str,
    tmp_path: Path,
    make_tokens: MakeTokens,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    write_random_model(tmp_path, SHAPES[name], ["some text to train on "])
    model = Model.from_directory(tmp_path, dtype=torch.bfloat16, device=device)
    token_ids = make_tokens(TOKEN_COUNT, 1)
    whole, whole_sink = prefill(model, token_ids, step_tokens=TOKEN_COUNT)
    pieces, pieces_sink = prefill(model, token_ids, step_tokens=17)
    between_shapes = difference(whole, pieces)
    restored = max(
        difference(cache, project_all(model, sink, step_tokens))
        for cache, sink in ((whole, whole_sink), (pieces, pieces_sink))
        for step_tokens in (TOKEN_COUNT, 64)
    )
    with capsys.disabled():
        print(  # noqa: T201 - the specification wants the largest difference reported
            f"\n{name} on {device} in bfloat16: restored states differ by at most {restored:g}, "
            f"two batch shapes of prefill by {between_shapes:g}"
        )
    assert restored <= between_shapes
