"""Models and layouts of every mode, first turns with them, and what is restored of these."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from engine_adapters.restore import Source
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.saver import StateSaver
from kvstored_client.testing import StoredChunk
from tests.engine_adapters.runner.checkpoints import write_llama, write_opt
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.restored import restored

MakeTokens = Callable[[int, int], list[int]]
EXACT = 1e-5
LAYERS = 4
PROMPT_TOKENS = 100
NEW_TOKENS = 20
WHOLE_CHUNKS = (PROMPT_TOKENS + NEW_TOKENS - 1) // CHUNK_TOKENS
VARIANTS: dict[str, Callable[[Path], object]] = {
    "mha": lambda path: write_llama(path, num_hidden_layers=LAYERS),
    "gqa": lambda path: write_llama(path, num_hidden_layers=LAYERS, num_key_value_heads=1),
    "opt": lambda path: write_opt(path, num_hidden_layers=LAYERS),
}
SCHEDULES = {
    "kv": ((Source.KV, 4),),
    "hidden": ((Source.HIDDEN, 4),),
    "hcache, compute-rich": ((Source.COMPUTE, 1), (Source.HIDDEN, 3)),
    "hcache, I/O-rich": ((Source.HIDDEN, 3), (Source.KV, 1)),
    "naive hybrid": ((Source.COMPUTE, 2), (Source.KV, 2)),
    "all three": ((Source.COMPUTE, 1), (Source.HIDDEN, 2), (Source.KV, 1)),
}


def run(
    model: Model,
    prompt: list[int],
    *,
    saver: StateSaver | None = None,
    restorer: Restorer | None = None,
) -> tuple[Completion, Engine]:
    engine = Engine(
        model, cache_tokens=256, token_budget=32, requests_max=1, sink=saver, restorer=restorer
    )
    engine.add_request(prompt, new_tokens_max=NEW_TOKENS, stop_token_ids=())
    (completion,) = engine.run()
    if restorer is not None:
        restorer.close()
    return completion, engine


@dataclass(frozen=True, slots=True)
class FirstTurn:
    """A first turn, and what was saved of it."""

    completion: Completion
    engine: Engine
    chunks: dict[bytes, StoredChunk]


def check_restored(
    restorer: Restorer, computed: tuple[Completion, Engine], model: Model, chunk_count: int
) -> None:
    """Restores into other slots and compares with the first turn's cache."""
    completion, engine = computed
    cache = model.make_cache(130)
    report = restored(restorer, completion.token_ids, cache=cache, first_slot=3)
    count = report.restored_tokens
    assert count == chunk_count * CHUNK_TOKENS
    for ours, wanted in (
        (cache.keys, engine._cache.keys),
        (cache.values, engine._cache.values),
    ):
        assert wanted[:, :count].abs().mean() > 0.01
        assert (ours[:, 3 : 3 + count] - wanted[:, :count]).abs().max() < EXACT
        assert torch.count_nonzero(ours[:, :3]) == 0
