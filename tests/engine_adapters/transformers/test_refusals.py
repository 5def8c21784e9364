"""What is neither restored nor stored, because its states are not those of tokens alone."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine_adapters.transformers import KvstoredCache
from kvstored_client.testing import MemoryClient
from tests.engine_adapters.transformers.answers import (
    CHUNK,
    PROMPT,
    PROMPT_TOKENS,
    answer,
    cache_of,
    forward,
    new_prompt,
    stored,
)
from tests.engine_adapters.transformers.models import make_model


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ({"attention_mask": torch.tensor([[0] + [1] * (PROMPT_TOKENS - 1)])}, "padding"),
        ({"token_type_ids": torch.zeros_like(PROMPT)}, "token_type_ids"),
        ({"pixel_values": torch.zeros(1)}, "pixel_values"),
    ],
)
def test_inputs_that_are_not_tokens_alone_are_refused(
    inputs: dict[str, Any], why: str, model: Any, client: MemoryClient
) -> None:
    stored(model, client)
    cache = cache_of(model, client, **inputs)
    assert why in cache.refusal
    assert cache.restored_tokens == 0
    answer(model, cache)
    assert cache.save() == 0


def test_several_prompts_are_refused(model: Any, client: MemoryClient) -> None:
    prompts = torch.cat([PROMPT, new_prompt(2)])
    cache = cache_of(model, client, prompts)
    assert "one sequence" in cache.refusal
    assert answer(model, cache, prompts) == answer(model, None, prompts)


class Wrapped(nn.Linear):
    """As adapters put around layers."""


def test_models_that_no_test_has_seen_are_refused(client: MemoryClient) -> None:
    windows = make_model("mistral", sliding_window=8)
    dynamic = make_model(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0})
    adapted = make_model()
    adapted.model.layers[0].mlp.up_proj.__class__ = Wrapped
    compiled = make_model()
    # As ``compiled.compile()`` leaves it, which would import a compiler.
    compiled._compiled_call_impl = compiled._call_impl
    absent = make_model().to("meta")
    for model, why in (
        (windows, "attend"),
        (dynamic, "dynamic"),
        (adapted, "Wrapped"),
        (compiled, "compiled"),
        (absent, "memory"),
    ):
        cache = cache_of(model, client)
        assert why in cache.refusal
        assert cache.save() == 0
    strange = make_model()
    strange.config.model_type = "strange"
    assert "strange" in cache_of(strange, client).refusal
    assert "PreTrainedModel" in KvstoredCache(nn.Linear(1, 1), PROMPT, client=client).refusal


def steer(_: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
    return output + 1


def test_states_of_a_steered_model_were_restored_into_a_plain_one(client: MemoryClient) -> None:
    """Bug: hooks are in no tensor, no module and no config."""
    model = make_model()
    layer = model.model.layers[0]
    hook = layer.mlp.register_forward_hook(steer)
    cache = cache_of(model, client)
    assert "hooks of tests." in cache.refusal
    answer(model, cache)
    assert cache.save() == 0
    hook.remove()
    # Only while the model computes.
    cache = cache_of(model, client)
    assert cache.refusal == ""
    steering = partial(steer_mlp, layer.mlp)
    with nn.modules.module.register_module_forward_hook(steering):  # type: ignore[arg-type]  # torch's own type leaves the result out
        answer(model, cache)
    assert "hooks of tests." in cache.refusal
    assert cache.save() == 0
    replaced = make_model()
    mlp = replaced.model.layers[0].mlp
    mlp.forward = partial(type(mlp).forward, mlp)
    assert "forward that is not of its class" in cache_of(replaced, client).refusal


def steer_mlp(steered: nn.Module, module: nn.Module, _inputs: Any, output: Tensor) -> Tensor | None:
    return output + 1 if module is steered else None


@pytest.mark.parametrize(
    "options",
    [
        {"position_ids": torch.arange(1, PROMPT_TOKENS + 1)[None]},
        {"attention_mask": torch.tensor([[0] * 3 + [1] * (PROMPT_TOKENS - 3)])},
        {"attention_mask": torch.ones(1, 1, PROMPT_TOKENS, PROMPT_TOKENS)},
    ],
    ids=["places", "mask", "mask of pairs"],
)
def test_states_of_anything_but_tokens_in_a_row_are_not_stored(
    options: dict[str, Any], model: Any, client: MemoryClient
) -> None:
    cache = cache_of(model, client)
    forward(model, cache, **options)
    assert cache.get_seq_length() == PROMPT_TOKENS
    assert cache.save() == 0
    plain = cache_of(model, client)
    forward(model, plain)
    assert plain.save() == 5


def test_states_from_embeddings_are_not_stored(model: Any, client: MemoryClient) -> None:
    cache = cache_of(model, client)
    with torch.no_grad():
        model(inputs_embeds=torch.zeros(1, PROMPT_TOKENS, 32), past_key_values=cache)
    assert cache.save() == 0


def test_a_model_that_trains_stores_nothing(client: MemoryClient) -> None:
    model = make_model(attention_dropout=0.5)
    cache = cache_of(model, client)
    model.train()
    forward(model, cache)
    assert cache.save() == 0


def test_states_that_no_call_added_are_not_stored(model: Any, client: MemoryClient) -> None:
    cache = cache_of(model, client)
    forward(model, cache)
    for number, layer in enumerate(cache.layers):
        cache.update(layer.keys[:, :, :CHUNK], layer.values[:, :, :CHUNK], number)
    assert cache.save() == 0


def test_a_cache_that_was_cut_goes_on_from_there(model: Any, client: MemoryClient) -> None:
    cache = cache_of(model, client)
    forward(model, cache)
    cache.crop(-(3 * CHUNK + 7))
    other = new_prompt(9, 2 * CHUNK)
    forward(model, cache, other)
    assert cache.save() == 4
    whole = torch.cat([PROMPT[:, : 2 * CHUNK], other, other[:, :1]], dim=1)
    assert cache_of(model, client, whole).restored_tokens == 4 * CHUNK
    restored = cache_of(model, client, PROMPT)
    assert restored.restored_tokens == 2 * CHUNK
    assert answer(model, restored) == answer(model)
