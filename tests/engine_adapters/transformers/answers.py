"""Prompts, answers to them, and caches that they come from."""

import random
from typing import Any

import torch

from engine_adapters.transformers import KvstoredCache

CHUNK = 16
PROMPT_TOKENS = 5 * CHUNK + 7
NEW_TOKENS = 8
MIB = 1024 * 1024


def new_prompt(seed: int = 1, tokens: int = PROMPT_TOKENS) -> torch.Tensor:
    generator = random.Random(seed)
    return torch.tensor([[generator.randrange(4, 97) for _ in range(tokens)]])


PROMPT = new_prompt()


def answer(model: Any, cache: Any = None, prompt: torch.Tensor = PROMPT, **options: Any) -> Any:
    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False, **options}
    return model.generate(prompt, past_key_values=cache, **options).tolist()


def cache_of(model: Any, client: Any, prompt: torch.Tensor = PROMPT, **options: Any) -> Any:
    return KvstoredCache(model, prompt, client=client, chunk_tokens=CHUNK, **options)


def stored(model: Any, client: Any, prompt: torch.Tensor = PROMPT) -> None:
    cache = cache_of(model, client, prompt)
    answer(model, cache, prompt)
    assert cache.save() > 0


def forward(model: Any, cache: Any, prompt: torch.Tensor = PROMPT, **options: Any) -> None:
    with torch.no_grad():
        model(prompt, past_key_values=cache, **options)
