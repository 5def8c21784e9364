"""What is read from vLLM's own configuration, whose fields change from release to release."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

import torch
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)

from engine_adapters.vllm.engine_config import HIDDEN_WORKER, facts_of, identity_of
from engine_adapters.vllm.options import RestoreMode
from engine_adapters.vllm.scheduler import CakeAsyncScheduler, CakeScheduler
from engine_adapters.vllm.support import supported
from engine_adapters.vllm.weights import UnknownWeightsError

SHAPE: dict[str, Any] = {
    "block_size": 16,
    "num_kv_heads": 1,
    "head_size": 32,
    "dtype": torch.float32,
}


@pytest.fixture
def config(model: Path) -> VllmConfig:
    return VllmConfig(
        model_config=ModelConfig(model=str(model), dtype="float32", max_model_len=2048),
        cache_config=CacheConfig(block_size=16),
        scheduler_config=SchedulerConfig(
            max_num_seqs=16,
            max_num_batched_tokens=128,
            max_model_len=2048,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
        ),
        device_config=DeviceConfig("cpu"),
    )


def caches(*specs: Any) -> KVCacheConfig:
    """One group of layers for each; a layer of full attention where none is given."""
    groups = [
        KVCacheGroupSpec([f"layers.{index}"], spec)
        for index, spec in enumerate(specs or (FullAttentionSpec(**SHAPE),))
    ]
    return KVCacheConfig(num_blocks=10, kv_cache_tensors=[], kv_cache_groups=groups)


def mode_of(config: VllmConfig, cache: KVCacheConfig, asked: RestoreMode) -> tuple[str, str]:
    support = supported(asked, facts_of(config, cache))
    return support.mode, support.reason


def test_plain_engine_is_supported(config: VllmConfig) -> None:
    assert mode_of(config, caches(), RestoreMode.CAKE) == ("cake", "")


def use_speculation(config: Any) -> None:
    config.speculative_config = object()


def use_pipeline(config: Any) -> None:
    config.parallel_config.pipeline_parallel_size = 2


def use_context(config: Any) -> None:
    config.parallel_config.decode_context_parallel_size = 2


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (use_speculation, "speculative"),
        (use_pipeline, "pipeline"),
        (use_context, "context"),
    ],
)
def test_what_cannot_be_stored_is_off(
    config: VllmConfig, change: Callable[[Any], None], word: str
) -> None:
    change(config)
    mode, reason = mode_of(config, caches(), RestoreMode.PREFIX)
    assert mode == "off"
    assert word in reason


def test_hybrid_model_is_off(config: VllmConfig) -> None:
    cache = caches(FullAttentionSpec(**SHAPE), SlidingWindowSpec(**SHAPE, sliding_window=64))
    mode, reason = mode_of(config, cache, RestoreMode.PREFIX)
    assert mode == "off"
    assert "SlidingWindow" in reason


def test_window_that_vllm_keeps_as_full_attention_is_a_prefix(config: VllmConfig) -> None:
    cache = caches(FullAttentionSpec(**SHAPE, sliding_window=64))
    mode, reason = mode_of(config, cache, RestoreMode.CAKE)
    assert mode == "prefix"
    assert "sliding window" in reason


def test_hidden_states_need_the_worker_class(config: VllmConfig) -> None:
    assert mode_of(config, caches(), RestoreMode.HCACHE)[0] == "prefix"
    config.parallel_config.worker_cls = HIDDEN_WORKER
    assert mode_of(config, caches(), RestoreMode.HCACHE)[0] == "hcache"


def test_lora_is_seen(config: Any) -> None:
    config.parallel_config.worker_cls = HIDDEN_WORKER
    config.lora_config = object()
    mode, reason = mode_of(config, caches(), RestoreMode.HCACHE)
    assert mode == "prefix"
    assert "LoRA" in reason


@pytest.mark.parametrize(
    "scheduler",
    [
        CakeScheduler,
        CakeAsyncScheduler,
        "engine_adapters.vllm.scheduler.CakeScheduler",
        "engine_adapters.vllm.scheduler.CakeAsyncScheduler",
    ],
)
def test_second_model_runner_needs_a_scheduler_that_jumps(
    config: VllmConfig, monkeypatch: pytest.MonkeyPatch, scheduler: type | str
) -> None:
    monkeypatch.setattr(type(config), "use_v2_model_runner", True)
    assert mode_of(config, caches(), RestoreMode.CAKE)[0] == "prefix"
    config.scheduler_config.scheduler_cls = scheduler
    assert mode_of(config, caches(), RestoreMode.CAKE)[0] == "cake"


def test_identity_covers_what_blocks_depend_on(config: Any) -> None:
    plain = identity_of(config, caches()).fingerprint()
    assert identity_of(config, caches()).fingerprint() == plain
    other_blocks = FullAttentionSpec(**{**SHAPE, "block_size": 32})
    assert identity_of(config, caches(other_blocks)).fingerprint() != plain
    config.parallel_config.tensor_parallel_size = 2
    assert identity_of(config, caches()).fingerprint() != plain
    config.parallel_config.tensor_parallel_size = 1
    config.model_config.hf_config.rope_parameters = {"rope_theta": 5.0, "rope_type": "default"}
    assert identity_of(config, caches()).fingerprint() != plain


def test_identity_covers_the_limit_of_a_rotation_that_depends_on_it(config: Any) -> None:
    plain = identity_of(config, caches()).fingerprint()
    config.model_config.max_model_len = 1024
    assert identity_of(config, caches()).fingerprint() == plain
    config.model_config.hf_config.rope_parameters = {"rope_theta": 5.0, "rope_type": "longrope"}
    short = identity_of(config, caches()).fingerprint()
    config.model_config.max_model_len = 2048
    assert identity_of(config, caches()).fingerprint() != short


def test_dummy_weights_are_unknown(config: Any) -> None:
    config.load_config.load_format = "dummy"
    with pytest.raises(UnknownWeightsError, match="dummy"):
        identity_of(config, caches())
