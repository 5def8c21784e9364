"""Which states of a cache are taken for those of one sequence."""

from typing import Any

import pytest
import torch

from engine_adapters.transformers.chunk_states import ChunkStates
from kvstored_client.testing import MemoryClient
from tests.engine_adapters.transformers.answers import CHUNK, PROMPT, cache_of, forward
from tests.engine_adapters.transformers.models import make_model

TOKENS = CHUNK + 3


@pytest.fixture(scope="module")
def model() -> Any:
    return make_model()


@pytest.fixture(scope="module")
def chunk_states(model: Any) -> ChunkStates:
    return ChunkStates.of_model(model, "a model", chunk_tokens=CHUNK)


def test_the_states_of_a_sequence_have_one_shape(chunk_states: ChunkStates) -> None:
    states = chunk_states.empty(TOKENS, torch.device("cpu"))
    assert chunk_states.is_shape_of(states)
    assert not chunk_states.is_shape_of(states[:-1])
    assert not chunk_states.is_shape_of([(key.double(), value) for key, value in states])
    assert not chunk_states.is_shape_of([(key[:, :1], value) for key, value in states])


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("half", [0, 1])
def test_each_layer_was_as_long_as_it_was(chunk_states: ChunkStates, layer: int, half: int) -> None:
    """Bug: every tensor was compared with its own length, so any lengths were fine."""
    states = chunk_states.empty(TOKENS, torch.device("cpu"))
    pair = list(states[layer])
    pair[half] = pair[half][:, :, 1:]
    states[layer] = (pair[0], pair[1])
    assert not chunk_states.is_shape_of(states)


def test_states_after_a_call_that_failed_half_way_were_stored(
    model: Any, client: MemoryClient
) -> None:
    """Bug: the last layer lacks a token, so all after it were stored under keys of others."""
    cache = cache_of(model, client)
    forward(model, cache)

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    hook = model.model.layers[2].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        forward(model, cache, PROMPT[:, :1])
    hook.remove()
    for _ in range(CHUNK):
        forward(model, cache, PROMPT[:, :1])
    lengths = [layer.keys.shape[-2] for layer in cache.layers]
    assert lengths == [lengths[0], lengths[0], lengths[0] - 1]
    assert cache.save() == 0
