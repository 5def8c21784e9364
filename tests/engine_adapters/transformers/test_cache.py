"""Prefix reuse in ``generate``: the same tokens with and without the store."""

from copy import deepcopy
from typing import Any

import pytest
import torch
import transformers

from engine_adapters.transformers import stored_prefix
from engine_adapters.transformers.support import TESTED_MODELS, TESTED_VERSIONS
from kvstored_client import Reason
from kvstored_client.testing import CallName, MemoryClient, MemoryStore
from tests.engine_adapters.breakers import alarmed
from tests.engine_adapters.transformers.answers import (
    CHUNK,
    NEW_TOKENS,
    PROMPT,
    PROMPT_TOKENS,
    answer,
    cache_of,
    new_prompt,
    stored,
)
from tests.engine_adapters.transformers.models import make_model


@pytest.mark.parametrize("kind", TESTED_MODELS)
def test_tokens_are_the_same_whatever_was_stored(kind: str, store: MemoryStore) -> None:
    """Another object of the model and another client stand for a second process."""
    first, second = make_model(kind), make_model(kind)
    plain = answer(first)
    cache = cache_of(first, MemoryClient(store))
    assert answer(first, cache) == plain
    assert cache.restored_tokens == 0
    # Of the tokens that were chosen, all but the last were computed as well.
    assert cache.save() == (PROMPT_TOKENS + NEW_TOKENS - 1) // CHUNK

    restored = cache_of(second, MemoryClient(store))
    assert restored.restored_tokens == restored.get_seq_length() == 5 * CHUNK
    assert answer(second, restored) == plain


@pytest.mark.parametrize("kind", TESTED_MODELS)
def test_restored_states_are_the_computed_ones(
    kind: str, client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(kind)
    computed = cache_of(model, client)
    answer(model, computed)
    computed.save()
    restored = cache_of(model, client)
    for before, after in zip(computed.layers, restored.layers, strict=True):
        length = restored.restored_tokens
        assert torch.equal(before.keys[:, :, :length], after.keys)
        assert torch.equal(before.values[:, :, :length], after.values)


def test_an_answer_is_a_prefix_too(model: Any, client: MemoryClient) -> None:
    first = cache_of(model, client)
    (said,) = answer(model, first, max_new_tokens=2 * CHUNK)
    first.save()
    longer = torch.tensor([said + new_prompt(2, 20)[0].tolist()])
    cache = cache_of(model, client, longer)
    assert cache.restored_tokens == (PROMPT_TOKENS + 2 * CHUNK - 1) // CHUNK * CHUNK
    assert answer(model, cache, longer) == answer(model, None, longer)


def test_turns_go_on_in_one_cache(model: Any, client: MemoryClient) -> None:
    cache = cache_of(model, client)
    (said,) = answer(model, cache)
    longer = torch.tensor([said + new_prompt(3, 30)[0].tolist()])
    (said,) = answer(model, cache, longer)
    cache.save()
    again = cache_of(model, client, torch.tensor([said]))
    assert again.restored_tokens == (len(said) - 1) // CHUNK * CHUNK


def test_another_model_is_a_miss(model: Any, client: MemoryClient) -> None:
    stored(model, client)
    others = {
        "weights": make_model(seed=8),
        "config": make_model(rope_parameters={"rope_type": "default", "rope_theta": 5e5}),
        "dtype": make_model().to(torch.bfloat16),
        "attention": make_model(attn_implementation="eager"),
    }
    with torch.no_grad():
        changed = make_model()
        changed.model.layers[2].mlp.up_proj.weight[0, 0] += 1
        others["one weight"] = changed
    found = {name: cache_of(other, client).restored_tokens for name, other in others.items()}
    assert found == dict.fromkeys(others, 0)
    assert cache_of(make_model(), client).restored_tokens > 0


def test_weights_may_be_named(model: Any, client: MemoryClient) -> None:
    cache = cache_of(model, client, weights="revision 1")
    answer(model, cache)
    assert cache.save() > 0
    assert cache_of(model, client, weights="revision 1").restored_tokens > 0
    assert cache_of(model, client, weights="revision 2").restored_tokens == 0
    assert cache_of(model, client).restored_tokens == 0


def test_weights_that_change_are_another_model(client: MemoryClient) -> None:
    model = make_model()
    cache = cache_of(model, client)
    answer(model, cache)
    with torch.no_grad():
        model.lm_head.weight.add_(1)
    assert cache.save() == 0
    stored(model, client)
    assert cache_of(make_model(), client).restored_tokens == 0


def test_another_prompt_shares_what_is_common(model: Any, client: MemoryClient) -> None:
    stored(model, client)
    prompt = PROMPT.clone()
    prompt[0, 2 * CHUNK + 3] += 1
    cache = cache_of(model, client, prompt)
    assert cache.restored_tokens == 2 * CHUNK
    assert answer(model, cache, prompt) == answer(model, None, prompt)


def test_a_lost_slice_ends_the_prefix(model: Any, store: MemoryStore, client: MemoryClient) -> None:
    stored(model, client)
    prefix = cache_of(model, client)._prefix
    keys = client.prefix_keys(prefix.format.layout, PROMPT[0].tolist())
    store.faults.lost_slices.add((keys[3], 1))
    cache = cache_of(model, client)
    assert cache.restored_tokens == 3 * CHUNK
    assert answer(model, cache) == answer(model)


@pytest.mark.parametrize("call", [CallName.MATCH, CallName.READ, CallName.PUT, CallName.REGISTER])
def test_a_store_that_refuses_is_a_miss(
    call: CallName, model: Any, store: MemoryStore, client: MemoryClient
) -> None:
    stored(model, client)
    store.faults.refusals[call] = Reason.INTERNAL
    other = new_prompt(5)
    for prompt in (PROMPT, other):
        cache = cache_of(model, client, prompt)
        assert answer(model, cache, prompt) == answer(model, None, prompt)
        if call is CallName.PUT:
            assert cache.save() == 0
        elif call is not CallName.REGISTER:
            assert cache.restored_tokens == 0


def test_no_store_is_a_miss(model: Any, store: MemoryStore, client: MemoryClient) -> None:
    stored(model, client)
    store.kill()
    cache = cache_of(model, client)
    assert cache.restored_tokens == 0
    assert answer(model, cache) == answer(model)
    assert cache.save() == 0


def test_a_store_that_ends_before_the_save_is_no_failure(
    model: Any, store: MemoryStore, client: MemoryClient
) -> None:
    cache = cache_of(model, client)
    answer(model, cache)
    store.kill()
    assert cache.save() == 0


def test_every_prompt_waited_for_a_daemon_that_hangs(
    model: Any, store: MemoryStore, client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: each one for as long as a call may take, whatever ``load_timeout_s`` was."""
    stored(model, client)
    monkeypatch.setitem(stored_prefix._BREAKERS, client, alarmed())
    look_ups = store.call_counts[CallName.MATCH]
    caches = [cache_of(model, client) for _ in range(5)]
    assert [cache.restored_tokens for cache in caches] == [5 * CHUNK, 0, 0, 0, 0]
    assert store.call_counts[CallName.MATCH] == look_ups + 1
    answer(model, caches[1])
    assert caches[1].save() == 0


def test_an_arena_that_is_full_is_a_miss(
    model: Any, store: MemoryStore, client: MemoryClient
) -> None:
    stored(model, client)
    store.faults.arena_is_full = True
    cache = cache_of(model, client)
    assert cache.restored_tokens == 0
    assert answer(model, cache) == answer(model)
    assert cache.save() == 0


def test_an_adapter_that_fails_is_a_miss(
    model: Any, client: MemoryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(model, client)

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("engine_adapters.transformers.stored_prefix.StoredPrefix.load", broken)
    cache = cache_of(model, client)
    assert answer(model, cache) == answer(model)
    monkeypatch.setattr("engine_adapters.transformers.stored_prefix.StoredPrefix.save", broken)
    assert cache.save() == 0
    monkeypatch.undo()
    monkeypatch.setattr("engine_adapters.transformers.cache.fed_of", broken)
    cache = cache_of(model, client, new_prompt(6))
    assert answer(model, cache, new_prompt(6)) == answer(model, None, new_prompt(6))
    assert cache.save() == 0


def test_what_is_larger_than_the_arena_goes_in_spans(model: Any, store: MemoryStore) -> None:
    """A quarter of this arena has room for one chunk of 24 KiB."""
    client = MemoryClient(store, arena_bytes=160 * 1024)
    stored(model, client)
    cache = cache_of(model, client)
    assert cache.restored_tokens == 5 * CHUNK
    assert answer(model, cache) == answer(model)
    assert store.call_counts[CallName.READ] > 1


@pytest.mark.parametrize(
    "options",
    [
        {"num_beams": 3},
        {"num_beams": 3, "num_return_sequences": 2},
        {"prefill_chunk_size": 20},
        {"prompt_lookup_num_tokens": 4},
    ],
    ids=str,
)
def test_every_way_to_generate_gives_the_same(
    options: dict[str, Any], model: Any, client: MemoryClient
) -> None:
    plain = answer(model, None, **options)
    stored(model, client)
    cache = cache_of(model, client)
    assert cache.restored_tokens > 0
    assert answer(model, cache, **options) == plain
    cache.save()
    # Whatever was saved after it, it is of these tokens.
    assert answer(model, cache_of(model, client)) == answer(model)


def test_several_samples_of_one_prompt(model: Any, client: MemoryClient) -> None:
    options: dict[str, Any] = {"do_sample": True, "num_return_sequences": 3, "temperature": 1.0}
    stored(model, client)
    torch.manual_seed(3)
    plain = answer(model, None, **options)
    torch.manual_seed(3)
    assert answer(model, cache_of(model, client), **options) == plain


def test_beams_store_nothing(model: Any, client: MemoryClient) -> None:
    cache = cache_of(model, client)
    answer(model, cache, num_beams=2)
    assert cache.save() == 0


def test_a_copy_has_states_of_its_own(model: Any, client: MemoryClient) -> None:
    stored(model, client)
    cache = cache_of(model, client)
    copied = deepcopy(cache)
    assert copied._model is model
    longer: dict[str, Any] = {"max_new_tokens": 2 * CHUNK}
    assert answer(model, copied, **longer) == answer(model, **longer)
    assert cache.get_seq_length() == cache.restored_tokens
    assert answer(model, cache) == answer(model)
    assert copied.save() > 0


def test_other_calls_of_the_model_are_left_alone(model: Any, client: MemoryClient) -> None:
    cache_of(model, client)
    assert cache_of(model, client) is not None
    assert len(model._forward_pre_hooks) == 1
    assert answer(model, transformers.DynamicCache(config=model.config)) == answer(model)


def test_the_release_was_tested() -> None:
    assert transformers.__version__ in TESTED_VERSIONS
