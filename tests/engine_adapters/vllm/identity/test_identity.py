from dataclasses import fields, replace

import pytest

from engine_adapters.vllm.identity.identity import EngineIdentity

IDENTITY = EngineIdentity(
    engine_version="0.32.0",
    weights="sha256:1",
    model_config={"rope_theta": 1.0, "_name_or_path": "here"},
    dtype="float32",
    kv_dtype="float32",
    quantization="None",
    backend="cpu LBHNC",
    instruction_set="vec AVX2",
    block_tokens=32,
    block_shape=(4096, 4),
    kv_heads=2,
    head_size=32,
    tensor_size=1,
    pipeline_size=1,
    rotary_limit=0,
    media="",
    loader="auto {}",
)

OTHER: dict[str, object] = {
    "engine_version": "0.31.0",
    "weights": "sha256:2",
    "model_config": {"rope_theta": 2.0},
    "dtype": "bfloat16",
    "kv_dtype": "fp8",
    "quantization": "awq",
    "backend": "cuda LBHNC",
    "instruction_set": "amx AVX512",
    "block_tokens": 16,
    "block_shape": (4096, 5),
    "kv_heads": 1,
    "head_size": 64,
    "tensor_size": 2,
    "pipeline_size": 2,
    "rotary_limit": 4096,
    "media": "video_pruning_rate=0.5",
    "loader": "pt {}",
}


def test_every_field_is_tried() -> None:
    assert OTHER.keys() == {field.name for field in fields(EngineIdentity)}


@pytest.mark.parametrize("name", OTHER)
def test_every_difference_is_another_fingerprint(name: str) -> None:
    changed = replace(IDENTITY, **{name: OTHER[name]})  # type: ignore[arg-type]
    assert changed.fingerprint() != IDENTITY.fingerprint()


def test_same_model_in_another_folder_is_the_same() -> None:
    moved = replace(IDENTITY, model_config={"rope_theta": 1.0, "_name_or_path": "there"})
    assert moved.fingerprint() == IDENTITY.fingerprint()
