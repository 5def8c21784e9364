"""What an engine is, read from vLLM's configuration. Imports vLLM."""

from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from vllm import __version__ as vllm_version
from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec

from engine_adapters.vllm.identity.identity import EngineIdentity
from engine_adapters.vllm.identity.request_identity import RequestIdentifier
from engine_adapters.vllm.settings.options import AdapterOptions, OptionError, RestoreMode
from engine_adapters.vllm.settings.state_kinds import StateShape
from engine_adapters.vllm.settings.support import (
    CAKE_SCHEDULER,
    HIDDEN_MODES,
    HIDDEN_WORKER,
    EngineFacts,
)
from engine_adapters.weights_identity import UnknownWeightsError, weights_identity
from kvstored_client import Shard

LOAD_FORMATS = frozenset(
    {
        "auto",
        "fastsafetensors",
        "hf",
        "instanttensor",
        "mistral",
        "npcache",
        "pt",
        "safetensors",
        "sharded_state",
    }
)
"""Those that read the model's own folder or repository."""
CAPACITIES = frozenset(
    {
        "allow_missing_mm_embeddings",
        "default_mm_loras",
        "enable_mm_embeds",
        "interleave_mm_strings",
        "limit_per_prompt",
        "max_cpu_loras",
        "max_lora_rank",
        "max_loras",
        "mm_ipc_gpu_memory_gb",
        "mm_processor_cache_gb",
        "mm_processor_cache_type",
        "mm_shm_cache_max_object_size_mb",
        "mm_tensor_ipc",
        "skip_mm_profiling",
        "specialize_active_lora",
    }
)
"""Settings for adapters and media that say how many, how fast, or by which way."""
FULL_SPECS = (FullAttentionSpec, MLAAttentionSpec)
"""Keys and values, or one latent, of each token, kept for good."""
JUMPING_SCHEDULERS = (CAKE_SCHEDULER, "engine_adapters.vllm.scheduler.CakeAsyncScheduler")


def cache_dtype(vllm_config: Any) -> str:
    """The dtype of the KV cache."""
    dtype = vllm_config.cache_config.cache_dtype
    return str(vllm_config.model_config.dtype if dtype == "auto" else dtype).removeprefix("torch.")


def identity_of(vllm_config: Any, kv_cache_config: Any) -> EngineIdentity:
    """The identity of an engine's states; raises UnknownWeightsError."""
    model, parallel = vllm_config.model_config, vllm_config.parallel_config
    group = kv_cache_config.kv_cache_groups[0]
    spec = group.kv_cache_spec
    load_format = str(vllm_config.load_config.load_format)
    if load_format not in LOAD_FORMATS:
        raise UnknownWeightsError(
            f"weights of load format {load_format} may not be those of the checkpoint"
        )
    if model.hf_config_path not in (None, model.model) and not Path(model.model).is_dir():
        # Its commit is that of another repository.
        raise UnknownWeightsError(
            f"the commit of {model.model} is unknown beside a configuration of "
            f"{model.hf_config_path}; name a local folder, or leave out hf_config_path"
        )
    commit = getattr(model.hf_config, "_commit_hash", None)
    return EngineIdentity(
        engine_version=vllm_version,
        weights=weights_identity(model.model, commit=commit),
        model_config=model.hf_config.to_dict(),
        dtype=str(model.dtype),
        kv_dtype=cache_dtype(vllm_config),
        quantization=_quantization(model),
        backend=f"{current_platform.device_type} {kv_cache_config.kv_cache_layout}",
        instruction_set=instruction_set(vllm_config, spec),
        block_tokens=spec.block_size,
        block_shape=(spec.page_size_bytes, len(group.layer_names)),
        kv_heads=spec.num_kv_heads,
        head_size=spec.head_size,
        tensor_size=parallel.tensor_parallel_size,
        pipeline_size=parallel.pipeline_parallel_size,
        rotary_limit=_rotary_limit(model),
        media=_media(model),
        loader=f"{load_format} {vllm_config.load_config.model_loader_extra_config}",
    )


def identifier_of(vllm_config: Any) -> RequestIdentifier:
    """What tells the identities of an engine's requests."""
    media = vllm_config.model_config.multimodal_config
    return RequestIdentifier(
        lora_config=_settings(vllm_config.lora_config),
        # Where nothing in it would use them, vLLM makes no hashes but counts.
        hashes_media=media is None
        or media.mm_processor_cache_gb > 0
        or bool(vllm_config.cache_config.enable_prefix_caching),
    )


def instruction_set(vllm_config: Any, spec: Any) -> str:
    """What the interior of a block was laid out for: on a CPU it depends on its instructions."""
    if current_platform.device_type != "cpu":
        # By the platform: the scheduler's process makes no context of CUDA.
        backend = getattr(vllm_config, "attention_config", None)
        chosen = getattr(backend, "backend", None)
        # Without a choice vLLM takes FlashInfer only where it is installed.
        has_flashinfer = find_spec("flashinfer") is not None
        return f"{current_platform.get_device_name()} {chosen} {has_flashinfer}"
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    kernel = _get_attn_isa(
        spec.dtype, spec.block_size, spec.head_size, vllm_config.cache_config.cache_dtype
    )
    return f"{kernel} {torch.backends.cpu.get_cpu_capability()}"


def facts_of(vllm_config: Any, kv_cache_config: Any) -> EngineFacts:
    """What the choice of a mode depends on."""
    parallel = vllm_config.parallel_config
    specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    is_v2 = bool(getattr(vllm_config, "use_v2_model_runner", False))
    scheduler = vllm_config.scheduler_config.scheduler_cls
    return EngineFacts(
        device=current_platform.device_type,
        attention=frozenset(
            "full" if type(spec) in FULL_SPECS and len(specs) == 1 else _kind(spec)
            for spec in specs
        ),
        has_window=any(
            getattr(spec, "sliding_window", None) is not None
            or getattr(spec, "attention_chunk_size", None) is not None
            for spec in specs
        ),
        has_speculation=vllm_config.speculative_config is not None,
        has_lora=vllm_config.lora_config is not None,
        has_whole_prefills=not vllm_config.model_config.is_prefix_caching_supported,
        tensor_size=parallel.tensor_parallel_size,
        hidden_size=vllm_config.model_config.get_hidden_size(),
        pipeline_size=parallel.pipeline_parallel_size,
        context_parallel_size=parallel.decode_context_parallel_size
        * parallel.prefill_context_parallel_size,
        jumps_positions=not is_v2 or _name(scheduler) in JUMPING_SCHEDULERS,
        has_jumping_scheduler=_name(scheduler) in JUMPING_SCHEDULERS,
        has_hidden_hooks=parallel.worker_cls == HIDDEN_WORKER,
    )


def shard_of(vllm_config: Any, rank: int) -> Shard:
    """The part of the model that one rank of a tensor-parallel group holds."""
    return Shard(tensor_rank=rank, tensor_size=vllm_config.parallel_config.tensor_parallel_size)


def state_shape(vllm_config: Any, kv_cache_config: Any) -> StateShape:
    """Bytes of the states of one rank."""
    group, model = kv_cache_config.kv_cache_groups[0], vllm_config.model_config
    rank_count = vllm_config.parallel_config.tensor_parallel_size
    return StateShape(
        block_bytes=(_page_bytes(group.kv_cache_spec),) * len(group.layer_names),
        block_tokens=group.kv_cache_spec.block_size,
        hidden_bytes=model.get_hidden_size() * model.dtype.itemsize // rank_count,
    )


def may_save_inputs(vllm_config: Any) -> bool:
    """Whether a connector that is not there yet may want layer inputs: then they get memory.

    Without a cost profile it wants them where they are smaller than keys and values.
    """
    transfer = vllm_config.kv_transfer_config
    try:
        options = AdapterOptions.parse(transfer.kv_connector_extra_config) if transfer else None
    except OptionError:
        # Of another connector, or the connector refuses it itself.
        return False
    if options is None or not options.saves:
        return False
    if vllm_config.lora_config is not None or vllm_config.speculative_config is not None:
        return False
    if options.mode in (RestoreMode.HCACHE, RestoreMode.AUTO) and not options.cost_profile:
        model = vllm_config.model_config
        heads = model.get_num_kv_heads(vllm_config.parallel_config)
        kv_dtype = getattr(torch, cache_dtype(vllm_config), torch.uint8)
        kv_bytes = 2 * heads * model.get_head_size() * kv_dtype.itemsize
        rank_count = vllm_config.parallel_config.tensor_parallel_size
        hidden_bytes = model.get_hidden_size() * model.dtype.itemsize // rank_count
        return options.mode is RestoreMode.HCACHE and hidden_bytes < kv_bytes
    return options.mode in (*HIDDEN_MODES, RestoreMode.AUTO)


def _page_bytes(spec: Any) -> int:
    """Bytes of a block without what vLLM adds to align the next one."""
    page_bytes: int = getattr(spec, "unpadded_page_size_bytes", spec.page_size_bytes)
    return page_bytes


def open_blocks_max(vllm_config: Any, options: AdapterOptions, block_tokens: int) -> int:
    """Blocks whose chunk can be incomplete at once, with room for as many again."""
    scheduler, chunk_tokens = vllm_config.scheduler_config, options.chunk_tokens_for(block_tokens)
    least: int = scheduler.max_num_batched_tokens // block_tokens
    open_blocks: int = scheduler.max_num_seqs * -(-chunk_tokens // block_tokens)
    return 2 * (least + open_blocks)


def _rotary_limit(model: Any) -> int:
    """LongRoPE has factors for short and for long prompts, by the longest that is allowed.

    Wherever in the configuration it is named: a model may have one for some layers only.
    """
    limit: int = model.max_model_len if "longrope" in repr(model.hf_config.to_dict()) else 0
    return limit


def _quantization(model: Any) -> str:
    """By which method, and what a user says of weights that are quantized while they are loaded.

    That may be of single layers, and older engines do not have it.
    """
    details = getattr(model, "quantization_config", None)
    return str(model.quantization) if details is None else f"{model.quantization} {details}"


def _media(model: Any) -> str:
    if model.multimodal_config is None:
        return ""
    files = sorted(Path(model.model).glob("*processor_config.json"))
    return f"{_settings(model.multimodal_config)} {[path.read_bytes() for path in files]}"


def _settings(config: Any) -> str:
    """All settings but those that change no states: a new one of vLLM tells engines apart."""
    if config is None:
        return ""
    settings = {field.name: getattr(config, field.name) for field in fields(config)}
    return repr([(name, settings[name]) for name in sorted(settings.keys() - CAPACITIES)])


def _kind(spec: Any) -> str:
    return type(spec).__name__.removesuffix("Spec")


def _name(scheduler: Any) -> str:
    if isinstance(scheduler, type):
        return f"{scheduler.__module__}.{scheduler.__qualname__}"
    return str(scheduler)
