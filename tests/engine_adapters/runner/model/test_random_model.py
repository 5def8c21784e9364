from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.model_config import Family
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from engine_adapters.runner.model.tokenizer import Tokenizer
from tests.engine_adapters.runner.test_logits import all_logits

SHAPE = RandomModelShape(
    vocab_size=300,
    hidden_size=64,
    intermediate_size=96,
    layer_count=2,
    head_count=4,
    kv_head_count=2,
)
OPT_SHAPE = replace(SHAPE, family=Family.OPT, kv_head_count=4, position_count=2048)
SHAPES = [pytest.param(SHAPE, id="llama"), pytest.param(OPT_SHAPE, id="opt")]
TEXT = "The store never serves bytes that were not stored under that key. " * 20


@pytest.mark.parametrize("shape", SHAPES)
def test_equal_arguments_give_equal_files(shape: RandomModelShape, tmp_path: Path) -> None:
    for name, seed in (("first", 0), ("second", 0), ("third", 1)):
        write_random_model(tmp_path / name, shape, [TEXT], seed=seed)
    names = ("config.json", "model.safetensors", "tokenizer.json")
    first, second, third = (
        [(tmp_path / directory / name).read_bytes() for name in names]
        for directory in ("first", "second", "third")
    )
    assert first == second
    assert first[1] != third[1]


@pytest.mark.parametrize("shape", SHAPES)
def test_transformers_computes_the_same(shape: RandomModelShape, tmp_path: Path) -> None:
    write_random_model(tmp_path, shape, [TEXT])
    token_ids = Tokenizer.from_directory(tmp_path).encode(TEXT)
    reference = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        expected = reference(torch.tensor([token_ids])).logits[0]
    logits = all_logits(Model.from_directory(tmp_path), token_ids, step_tokens=50)
    assert (logits - expected).abs().max() < 1e-4


@pytest.mark.parametrize("shape", SHAPES)
def test_an_early_token_changes_the_last_logits(shape: RandomModelShape, tmp_path: Path) -> None:
    write_random_model(tmp_path, shape, [TEXT])
    model = Model.from_directory(tmp_path)
    tokens = torch.randint(256, (200,), generator=torch.Generator().manual_seed(1)).tolist()
    before = all_logits(model, tokens, step_tokens=200)[-1]
    changed = [*tokens[:10], *tokens[30:40], *tokens[20:]]
    after = all_logits(model, changed, step_tokens=200)[-1]
    assert (before - after).abs().max() > 1e-3


def test_default_shape_has_about_25_million_parameters() -> None:
    for kv_head_count in (8, 2):
        shape = RandomModelShape(kv_head_count=kv_head_count)
        states = shape.kv_head_count * shape.head_dim
        attention = 2 * shape.hidden_size**2 + 2 * shape.hidden_size * states
        mlp = 3 * shape.hidden_size * shape.intermediate_size
        embeddings = 2 * shape.vocab_size * shape.hidden_size
        assert 20e6 < shape.layer_count * (attention + mlp) + embeddings < 27e6


@pytest.mark.parametrize("shape", SHAPES)
def test_greedy_text_does_not_repeat_one_token(shape: RandomModelShape, tmp_path: Path) -> None:
    write_random_model(tmp_path, shape, [TEXT])
    engine = Engine(Model.from_directory(tmp_path), cache_tokens=140)
    engine.add_request(list(range(40)), new_tokens_max=100)
    (completion,) = engine.run()
    assert len(set(completion.generated_ids)) > 10


def test_opt_with_fewer_key_heads_is_refused() -> None:
    with pytest.raises(ValueError, match="as many key heads as heads \\(4\\), not 2"):
        replace(SHAPE, family=Family.OPT)
