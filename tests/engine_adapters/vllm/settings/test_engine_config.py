"""What is read from vLLM's own configuration, whose fields change from release to release."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")

import torch
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    LoRAConfig,
    ModelConfig,
    MultiModalConfig,
    PoolerConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)

from engine_adapters.vllm.identity.chunk_keys import RequestIdentity
from engine_adapters.vllm.identity.request_identity import UnknownIdentityError
from engine_adapters.vllm.scheduler import CakeAsyncScheduler, CakeScheduler
from engine_adapters.vllm.settings import engine_config
from engine_adapters.vllm.settings.engine_config import (
    facts_of,
    identifier_of,
    identity_of,
    may_save_inputs,
    open_blocks_max,
    state_shape,
)
from engine_adapters.vllm.settings.options import AdapterOptions, RestoreMode
from engine_adapters.vllm.settings.support import HIDDEN_WORKER, supported
from engine_adapters.weights_identity import UnknownWeightsError

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


def test_a_single_latent_is_kept_as_a_whole_prefix_and_for_good(config: VllmConfig) -> None:
    """Bug: models with multi-head latent attention were off."""
    assert mode_of(config, caches(MLAAttentionSpec(**SHAPE)), RestoreMode.CAKE) == ("cake", "")


def test_identity_covers_the_gpu_and_its_attention(
    config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked of the platform: the scheduler's process has no memory on the GPU."""
    seen = set()
    for name, backend in (("one", None), ("other", None), ("other", "FLASHINFER")):
        gpu = SimpleNamespace(device_type="cuda", get_device_name=lambda name=name: name)
        monkeypatch.setattr(engine_config, "current_platform", gpu)
        config.attention_config = SimpleNamespace(backend=backend)
        seen.add(engine_config.instruction_set(config, FullAttentionSpec(**SHAPE)))
    assert len(seen) == 3


def test_padding_between_blocks_is_not_stored(config: VllmConfig) -> None:
    plain = state_shape(config, caches())
    padded = caches(FullAttentionSpec(**SHAPE, page_size_padded=3 * plain.block_bytes[0]))
    assert state_shape(config, padded) == plain


def test_window_that_vllm_keeps_as_full_attention_is_a_prefix(config: VllmConfig) -> None:
    cache = caches(FullAttentionSpec(**SHAPE, sliding_window=64))
    mode, reason = mode_of(config, cache, RestoreMode.CAKE)
    assert mode == "prefix"
    assert "sliding window" in reason


@pytest.mark.parametrize("chunk_tokens", [0, 512])
def test_open_chunks_of_a_full_batch_had_no_room_for_their_rows(
    config: VllmConfig, chunk_tokens: int
) -> None:
    """Bug: the buffer had room for the smallest chunks, and larger ones lost rows to each other."""
    open_blocks = 16 * (chunk_tokens or 64) // 16
    assert open_blocks_max(config, AdapterOptions(chunk_tokens=chunk_tokens), 16) >= open_blocks


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


def test_ranks_have_as_many_columns_of_a_layer_input_each(config: Any) -> None:
    whole = state_shape(config, caches()).hidden_bytes
    config.parallel_config.tensor_parallel_size = 4
    assert state_shape(config, caches()).hidden_bytes * 4 == whole
    assert facts_of(config, caches()).hidden_size == config.model_config.get_hidden_size()


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


def test_identity_covers_which_files_are_read(config: Any) -> None:
    plain = identity_of(config, caches()).fingerprint()
    config.load_config.load_format = "pt"
    assert identity_of(config, caches()).fingerprint() != plain


def test_identity_covers_how_weights_are_quantized_while_they_are_loaded(config: Any) -> None:
    """Bug: engines that quantize the same weights differently shared their states."""
    model = config.model_config
    plain = identity_of(config, caches()).fingerprint()
    seen = {plain}
    for weight in ("mxfp8", "mxfp4"):
        model.quantization_config = {"linear": {"weight": weight}}
        seen.add(identity_of(config, caches()).fingerprint())
    assert len(seen) == 3
    model.quantization_config = None
    assert identity_of(config, caches()).fingerprint() == plain


@pytest.mark.parametrize("load_format", ["dummy", "tensorizer", "someone's own"])
def test_weights_from_elsewhere_are_unknown(config: Any, load_format: str) -> None:
    config.load_config.load_format = load_format
    with pytest.raises(UnknownWeightsError, match=load_format):
        identity_of(config, caches())


def test_configuration_from_elsewhere_does_not_name_the_weights(config: Any) -> None:
    """Bug: two models of a hub that were served with the configuration of a third shared all."""
    model = config.model_config
    model.model, model.hf_config._commit_hash = "someone/model", "abc"
    assert identity_of(config, caches()).weights == "commit:abc"
    model.hf_config_path = "someone/model"
    assert identity_of(config, caches()).weights == "commit:abc"
    model.hf_config_path = "someone/other"
    with pytest.raises(UnknownWeightsError, match="leave out hf_config_path"):
        identity_of(config, caches())


def test_identity_covers_what_is_done_to_images(config: Any, tmp_path: Path) -> None:
    """Bug: engines that normalise images differently shared their states."""
    model = config.model_config
    assert identity_of(config, caches()).media == ""
    model.multimodal_config = MultiModalConfig(mm_processor_kwargs={"do_normalize": True})
    plain = identity_of(config, caches()).fingerprint()
    assert identity_of(config, caches()).fingerprint() == plain
    model.multimodal_config = MultiModalConfig(mm_processor_kwargs={"do_normalize": False})
    assert identity_of(config, caches()).fingerprint() != plain
    roomier = {"mm_processor_kwargs": {"do_normalize": True}, "mm_processor_cache_gb": 8}
    model.multimodal_config = MultiModalConfig(**roomier)
    assert identity_of(config, caches()).fingerprint() == plain, "it changes no states"
    shutil.copytree(model.model, tmp_path / "copy")
    model.model = str(tmp_path / "copy")
    before = identity_of(config, caches()).fingerprint()
    (tmp_path / "copy" / "preprocessor_config.json").write_text("{}")
    assert identity_of(config, caches()).fingerprint() != before


def adapter_identity(config: Any, folder: Path) -> RequestIdentity:
    lora = SimpleNamespace(lora_name="a", lora_int_id=1, lora_path=str(folder))
    request = SimpleNamespace(
        prompt_token_ids=[1], lora_request=lora, cache_salt=None, mm_features=[]
    )
    return identifier_of(config).identity_of(request)


def test_adapters_are_known_by_how_they_are_applied(config: Any, tmp_path: Path) -> None:
    """Bug: engines that apply other parts of the same adapter shared its states."""
    config.lora_config = LoRAConfig(max_lora_rank=8)
    plain = adapter_identity(config, tmp_path)
    config.lora_config = LoRAConfig(max_lora_rank=16, max_loras=2)
    assert adapter_identity(config, tmp_path) == plain
    config.lora_config = LoRAConfig(max_lora_rank=8, target_modules=["q_proj"])
    assert adapter_identity(config, tmp_path) != plain


@pytest.mark.parametrize(
    ("cache_gb", "prefix_caching", "is_known"),
    [(4, False, True), (0, True, True), (0, False, False)],
)
def test_images_have_hashes_where_a_cache_needs_them(
    config: Any, cache_gb: int, prefix_caching: bool, is_known: bool
) -> None:
    config.model_config.multimodal_config = MultiModalConfig(mm_processor_cache_gb=cache_gb)
    config.cache_config.enable_prefix_caching = prefix_caching
    place = SimpleNamespace(offset=0, length=4)
    image = SimpleNamespace(identifier="i", modality="image", mm_position=place)
    request = SimpleNamespace(
        prompt_token_ids=[1], lora_request=None, cache_salt=None, mm_features=[image]
    )
    if is_known:
        assert identifier_of(config).identity_of(request).media
        return
    with pytest.raises(UnknownIdentityError, match="no hash"):
        identifier_of(config).identity_of(request)


@pytest.mark.parametrize(("pooling", "mode"), [("MEAN", "off"), ("CLS", "off"), ("LAST", "prefix")])
def test_model_that_needs_its_whole_prompt_at_once_is_off(
    config: Any, pooling: str, mode: str
) -> None:
    """Bug: a hit ended an engine that makes the mean of its tokens."""
    config.model_config.pooler_config = PoolerConfig(seq_pooling_type=pooling)
    found, reason = mode_of(config, caches(), RestoreMode.PREFIX)
    assert found == mode
    assert ("as a whole" in reason) == (mode == "off")


@pytest.mark.parametrize(
    ("options", "heads", "may"),
    [
        ({"mode": "hcache"}, 4, True),
        ({"mode": "hcache"}, 1, False),
        ({"mode": "hcache", "cost_profile": "costs.json"}, 1, True),
        ({"mode": "auto"}, 4, False),
        ({"mode": "auto", "cost_profile": "costs.json"}, 4, True),
        ({"mode": "pic"}, 1, True),
        ({"mode": "pic", "saves": False}, 1, False),
        ({"mode": "prefix"}, 4, False),
        ({"spec_name": "of another connector"}, 4, False),
        (None, 4, False),
    ],
)
def test_layer_inputs_get_memory_only_where_they_may_be_saved(
    config: Any,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, object] | None,
    heads: int,
    may: bool,
) -> None:
    """Without grouped heads they are smaller than keys and values."""
    transfer = None if options is None else SimpleNamespace(kv_connector_extra_config=options)
    config.kv_transfer_config = transfer
    monkeypatch.setattr(type(config.model_config), "get_num_kv_heads", lambda *_: heads)
    assert may_save_inputs(config) is may
