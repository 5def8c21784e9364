"""Logits equal those of transformers on the same checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from tests.engine_adapters.runner.checkpoints import (
    LLAMA3_ROPE,
    write_llama,
    write_mistral,
    write_opt,
)

TOKEN_COUNT = 150
VARIANTS: dict[str, dict[str, Any]] = {
    "mha": {},
    "gqa": {"num_key_value_heads": 2},
    "mqa": {"num_key_value_heads": 1},
    "head_dim": {"head_dim": 16, "num_key_value_heads": 2},
    "tied": {"tie_word_embeddings": True},
    "attention_bias": {"attention_bias": True, "num_key_value_heads": 2},
    "mlp_bias": {"mlp_bias": True},
    "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}},
    "llama3": {"rope_parameters": LLAMA3_ROPE, "head_dim": 16},
    "epsilon": {"rms_norm_eps": 1e-2},
    "shards": {"shard_bytes": "20KB"},
}

OPT_VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "untied": {"tie_word_embeddings": False},
    "odd_heads": {"hidden_size": 20},
    "shards": {"shard_bytes": "20KB"},
}

MakeTokens = Callable[[int, int], list[int]]


def all_logits(model: Model, token_ids: list[int], *, step_tokens: int) -> Tensor:
    """Logits of every token, computed ``step_tokens`` at a time."""
    cache = model.make_cache(len(token_ids))
    parts = []
    for first in range(0, len(token_ids), step_tokens):
        part = token_ids[first : first + step_tokens]
        segment = Segment(
            request_id=0, first_row=0, token_count=len(part), first_position=first, first_slot=0
        )
        rows = range(len(part))
        parts.append(model.forward(part, [segment], cache=cache, sink=NullSink(), logit_rows=rows))
    return torch.cat(parts)


@pytest.mark.parametrize("variant", VARIANTS)
def test_llama_variants(variant: str, tmp_path: Path, make_tokens: MakeTokens) -> None:
    reference = write_llama(tmp_path, **VARIANTS[variant])
    token_ids = make_tokens(TOKEN_COUNT, 1)
    with torch.no_grad():
        expected = reference(torch.tensor([token_ids])).logits[0]
    model = Model.from_directory(tmp_path)
    assert expected.std() > 0.1
    for step_tokens in (TOKEN_COUNT, 64, 1):
        logits = all_logits(model, token_ids, step_tokens=step_tokens)
        assert (logits - expected).abs().max() < 1e-4


@pytest.mark.parametrize("variant", OPT_VARIANTS)
def test_opt_variants(variant: str, tmp_path: Path, make_tokens: MakeTokens) -> None:
    reference = write_opt(tmp_path, **OPT_VARIANTS[variant])
    token_ids = make_tokens(TOKEN_COUNT, 1)
    with torch.no_grad():
        expected = reference(torch.tensor([token_ids])).logits[0]
    model = Model.from_directory(tmp_path)
    assert model.rotary is None
    assert expected.std() > 0.1
    for step_tokens in (TOKEN_COUNT, 64, 1):
        logits = all_logits(model, token_ids, step_tokens=step_tokens)
        assert (logits - expected).abs().max() < 1e-4


@pytest.mark.parametrize("write", [write_llama, write_opt])
def test_greedy_continuations(
    write: Callable[..., Any], tmp_path: Path, make_tokens: MakeTokens
) -> None:
    # Tied random embeddings would make each token its own successor.
    reference = write(tmp_path, tie_word_embeddings=False)
    prompt = make_tokens(30, 6)
    with torch.no_grad():
        expected = reference.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt)),
            do_sample=False,
            max_new_tokens=60,
            pad_token_id=1,
        )[0, len(prompt) :]
    engine = Engine(
        Model.from_directory(tmp_path), cache_tokens=90, requests_max=1, token_budget=16
    )
    engine.add_request(prompt, new_tokens_max=60)
    (completion,) = engine.run()
    assert list(completion.generated_ids) == expected.tolist()
    assert len(set(completion.generated_ids)) > 3


def test_scaling_changes_the_logits(tmp_path: Path, make_tokens: MakeTokens) -> None:
    """The variants above are no accident of positions that scaling leaves alone."""
    token_ids = make_tokens(TOKEN_COUNT, 1)
    logits = []
    for name in ("mha", "linear"):
        write_llama(tmp_path / name, **VARIANTS[name])
        model = Model.from_directory(tmp_path / name)
        logits.append(all_logits(model, token_ids, step_tokens=TOKEN_COUNT))
    assert (logits[0] - logits[1]).abs().max() > 1e-2


@pytest.mark.parametrize("window", [None, 512])
def test_mistral_without_effective_window(
    window: int | None, tmp_path: Path, make_tokens: MakeTokens
) -> None:
    reference = write_mistral(tmp_path, sliding_window=window, num_key_value_heads=2)
    token_ids = make_tokens(TOKEN_COUNT, 2)
    with torch.no_grad():
        expected = reference(torch.tensor([token_ids])).logits[0]
    logits = all_logits(Model.from_directory(tmp_path), token_ids, step_tokens=40)
    assert (logits - expected).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("write", "changes"),
    [(write_llama, {"initializer_range": 0.1}), (write_opt, {"init_std": 0.1})],
)
def test_bfloat16_follows_transformers(
    write: Callable[..., Any],
    changes: dict[str, Any],
    tmp_path: Path,
    make_tokens: MakeTokens,
) -> None:
    reference = write(tmp_path, **changes).bfloat16()
    token_ids = make_tokens(40, 3)
    with torch.no_grad():
        expected = reference(torch.tensor([token_ids])).logits[0].float()
    model = Model.from_directory(tmp_path, dtype=torch.bfloat16)
    logits = all_logits(model, token_ids, step_tokens=40)
    assert logits.dtype is torch.float32
    assert (logits - expected).abs().max() < 0.05 * expected.abs().max()


def test_batched_sequences_do_not_see_each_other(model: Model, make_tokens: MakeTokens) -> None:
    first, second = make_tokens(30, 4), make_tokens(21, 5)
    cache = model.make_cache(64)
    segments = [
        Segment(request_id=0, first_row=0, token_count=30, first_position=0, first_slot=21),
        Segment(request_id=1, first_row=30, token_count=21, first_position=0, first_slot=0),
    ]
    logits = model.forward(
        first + second, segments, cache=cache, sink=NullSink(), logit_rows=range(51)
    )
    alone = [all_logits(model, tokens, step_tokens=30) for tokens in (first, second)]
    assert (logits - torch.cat(alone)).abs().max() < 1e-4
