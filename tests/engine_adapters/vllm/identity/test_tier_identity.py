from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from engine_adapters.vllm.identity.tier_identity import TierIdentity, tier_identity, tier_key
from engine_adapters.weights_identity import UnknownWeightsError


@dataclass(frozen=True)
class Group:
    tokens_per_block: int = 32
    layer_names: tuple[str, ...] = ("layers.0",)


@dataclass(frozen=True)
class Model:
    name: str
    dtype: str = "float32"


@dataclass(frozen=True)
class Cache:
    tokens_per_hash: int = 32
    blocks_per_chunk: int = 2


@dataclass(frozen=True)
class Parallel:
    rank: int = 0
    tp_size: int = 1
    data_parallel_index: int = 0


@dataclass(frozen=True)
class Config:
    """The fields of vLLM's ``OffloadingConfig`` that matter."""

    model: Model
    groups: tuple[Group, ...] = (Group(),)
    cache: Cache = Cache()
    parallel: Parallel = Parallel()
    kv_cache_layout: str | None = None
    canonical_layout: bool = False
    replicated_layout: bool = False
    extra: dict[str, Any] = field(default_factory=dict)


def identity(config: Config, **changes: Any) -> TierIdentity:
    facts = {
        "engine_version": "1",
        "instruction_set": "cpu",
        "chunk_bytes": 4096,
        "revision": "",
        "named": "",
    }
    return tier_identity(config, **{**facts, **changes})


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def test_equal_engines_share(checkpoint: Path) -> None:
    config = Config(Model(str(checkpoint)))
    other = replace(config, parallel=Parallel(rank=1, data_parallel_index=3))
    assert identity(config).fingerprint() == identity(other).fingerprint()


@pytest.mark.parametrize(
    "change",
    [
        {"groups": (Group(tokens_per_block=16),)},
        {"groups": (Group(layer_names=("layers.1",)),)},
        {"cache": Cache(blocks_per_chunk=4)},
        {"cache": Cache(tokens_per_hash=16)},
        {"parallel": Parallel(tp_size=2)},
        {"kv_cache_layout": "HND"},
        # Bug: permuted bytes were taken for those of the other order.
        {"canonical_layout": True},
        {"replicated_layout": True},
    ],
)
def test_whatever_vllm_tells_separates(checkpoint: Path, change: dict[str, Any]) -> None:
    config = Config(Model(str(checkpoint)))
    other = replace(config, **change)
    assert identity(config).fingerprint() != identity(other).fingerprint()


@pytest.mark.parametrize(
    "change",
    [
        {"engine_version": "2"},
        {"instruction_set": "cpu avx512"},
        {"chunk_bytes": 8192},
        {"named": "lora of monday"},
    ],
)
def test_whatever_else_is_known_separates(checkpoint: Path, change: dict[str, Any]) -> None:
    config = Config(Model(str(checkpoint)))
    assert identity(config).fingerprint() != identity(config, **change).fingerprint()


def test_dtype_weights_and_their_config_separate(checkpoint: Path) -> None:
    config = Config(Model(str(checkpoint)))
    seen = {identity(config).fingerprint()}
    seen.add(identity(replace(config, model=Model(str(checkpoint), "bfloat16"))).fingerprint())
    (checkpoint / "config.json").write_text('{"rope_theta": 1}')
    seen.add(identity(config).fingerprint())
    (checkpoint / "model.safetensors").write_bytes(b"others")
    seen.add(identity(config).fingerprint())
    assert len(seen) == 4


def test_model_of_a_hub_needs_a_revision() -> None:
    config = Config(Model("somebody/model"))
    with pytest.raises(UnknownWeightsError):
        identity(config)
    one, two = identity(config, revision="1"), identity(config, revision="2")
    assert one.checkpoint_config == ""
    assert one.fingerprint() != two.fingerprint()


def test_keys_differ_by_namespace_layout_and_chunk() -> None:
    keys = {
        tier_key("n", b"layout", b"chunk"),
        tier_key("m", b"layout", b"chunk"),
        tier_key("n", b"other", b"chunk"),
        tier_key("n", b"layout", b"other"),
    }
    assert {len(key) for key in keys} == {32}
    assert len(keys) == 4
