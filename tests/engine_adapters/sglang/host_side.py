"""What of SGLang computes on the host: its real pools and cache controller, without a GPU.

SGLang's own package imports all of the engine, and some of that a GPU's libraries. Its package is
replaced by an empty one with the same folder, and libraries that are not there by empty ones.
"""

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

HAS_SGLANG = importlib.util.find_spec("sglang") is not None
ABSENT = frozenset(
    {
        *("IPython", "kernels", "pynvml", "python_multipart", "soundfile"),
        *("torchao", "torchcodec", "torchvision"),
    }
)
"""Libraries that SGLang imports and nothing here calls."""
LAYERS, HEADS, HEAD_DIM, PAGE, DEVICE_TOKENS = 4, 2, 16, 16, 256
LATENT, ROPE = 24, 8
"""Widths of the two parts of a token in a pool of MLA."""
HOST_PAGES = 64


class EmptyModule(types.ModuleType):
    """Has every name, each a class that does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda *_, **__: None})


class EmptyLibraries(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the libraries of ``ABSENT`` that are not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in ABSENT:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        module = EmptyModule(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """There is nothing to run."""


def prepare() -> None:
    """Makes the host side importable, in this process."""
    if "sglang" in sys.modules:
        return
    spec = importlib.util.find_spec("sglang")
    assert spec is not None
    assert spec.origin is not None
    _remember_what_is_there()
    package = types.ModuleType("sglang")
    package.__path__ = [str(Path(spec.origin).parent)]
    sys.modules["sglang"] = package
    sys.meta_path.append(EmptyLibraries())
    from sglang.srt.mem_cache import utils

    # Its own is compiled when it is first called.
    utils.get_native_hash = page_digests


def _remember_what_is_there() -> None:
    """Transformers looks once for each library: before there are empty ones."""
    from transformers.utils import import_utils

    for name, look in vars(import_utils).items():
        if name.endswith("_available") and any(library in name for library in ABSENT):
            look()


def page_digests(token_ids: Sequence[int], prior: bytes | None, page_tokens: int) -> list[str]:
    """Names of whole pages: a chain of digests over tokens of 4 bytes, as SGLang computes it."""
    names, digest = [], prior or b""
    for first in range(0, len(token_ids) - page_tokens + 1, page_tokens):
        words = b"".join(
            int(each).to_bytes(4, "little") for each in token_ids[first:][:page_tokens]
        )
        digest = hashlib.sha256(digest + words).digest()
        names.append(digest.hex())
    return names


def make_pool(layout: str, *, is_mla: bool = False, dtype: str = "bfloat16") -> Any:
    """A host pool of SGLang full of random states."""
    import torch

    pool = (_mla_pool if is_mla else _mha_pool)(layout, getattr(torch, dtype))
    pool.kv_buffer.copy_(torch.randn(pool.kv_buffer.shape))
    return pool


def _pointers(tensors: Sequence[Any]) -> Any:
    import torch

    return torch.tensor([tensor.data_ptr() for tensor in tensors], dtype=torch.uint64)


def _mha_pool(layout: str, dtype: Any) -> Any:
    import torch
    from sglang.srt.mem_cache.device_pool_info import KVBufferLayout, KVBuffers, MHABufferInfo
    from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost

    def make() -> tuple[Any, ...]:
        shape = (DEVICE_TOKENS, HEADS, HEAD_DIM)
        return tuple(torch.zeros(shape, dtype=dtype) for _ in range(LAYERS))

    keys, values = make(), make()
    buffers = KVBuffers(
        k=keys,
        v=values,
        k_data_ptrs=_pointers(keys),
        v_data_ptrs=_pointers(values),
        layout=KVBufferLayout.NHD,
    )
    info = MHABufferInfo(
        buffers=buffers,
        page_size=PAGE,
        head_num=HEADS,
        head_dim=HEAD_DIM,
        v_head_dim=HEAD_DIM,
        dtype=dtype,
        device=torch.device("cpu"),
    )
    return MHATokenToKVPoolHost(
        info,
        2.0,
        0,
        PAGE,
        layout,
        pin_memory=False,
        device="cpu",
        device_capacity_tokens=DEVICE_TOKENS,
        start_layer=0,
        end_layer=LAYERS,
        host_token_capacity=HOST_PAGES * PAGE,
    )


def _mla_pool(layout: str, dtype: Any) -> Any:
    import torch
    from sglang.srt.mem_cache.device_pool_info import MLABufferInfo
    from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost

    shape = (DEVICE_TOKENS, 1, LATENT + ROPE)
    buffers = tuple(torch.zeros(shape, dtype=dtype) for _ in range(LAYERS))
    info = MLABufferInfo(
        buffers=buffers,
        data_ptrs=_pointers(buffers),
        layer_indices=tuple(range(LAYERS)),
        device_layer_num=LAYERS,
        page_size=PAGE,
        kv_lora_rank=LATENT,
        qk_rope_head_dim=ROPE,
        kv_cache_dim=LATENT + ROPE,
        dtype=dtype,
        device=torch.device("cpu"),
    )
    return MLATokenToKVPoolHost(
        info,
        2.0,
        0,
        PAGE,
        layout,
        pin_memory=False,
        device="cpu",
        device_capacity_tokens=DEVICE_TOKENS,
        start_layer=0,
        end_layer=LAYERS,
        target_layer_num=LAYERS,
        host_token_capacity=HOST_PAGES * PAGE,
    )


class NoDevice:
    """The part of an allocator and of its pool on the device that a controller asks."""

    device = "cpu"
    layer_num = LAYERS

    def get_kvcache(self) -> "NoDevice":
        return self

    def register_layer_transfer_counter(self, counter: object) -> None:
        """Nothing is transferred."""


@contextmanager
def controlled(pool: Any, extra: dict[str, Any], *, model: str = "model") -> Iterator[Any]:
    """SGLang's cache controller over a host pool, with our backend attached as users do it."""
    from sglang.srt.managers.cache_controller import HiCacheController
    from sglang.srt.runtime_context import get_parallel

    names = ("tp", "pp", "attn_dcp", "attn_tp", "attn_cp", "attn_dp")
    alone = {f"{name}_{part}": int(part == "size") for name in names for part in ("rank", "size")}
    with get_parallel().override(**alone):
        controller = HiCacheController(
            NoDevice(),
            pool,
            PAGE,
            None,
            Event(),
            io_backend="direct",
            storage_backend="dynamic",
            model_name=model,
            storage_backend_extra_config={
                "backend_name": "kvstored",
                "module_path": "engine_adapters.sglang.backend",
                "class_name": "KvstoredBackend",
                "interface_v1": 1,
                **extra,
            },
        )
        try:
            yield controller
        finally:
            controller.detach_storage_backend()


def backed_up(controller: Any, indices: Any, tokens: list[int]) -> int:
    """Stores the pages of some tokens; how many tokens SGLang counts as stored."""
    names = page_digests(tokens, None, PAGE)
    controller.write_storage(indices, tokens, hash_value=names, prefix_keys=[])
    done: int = controller.ack_backup_queue.get(timeout=100).completed_tokens
    return done


def prefetched(
    controller: Any, request: str, tokens: list[int], *, between: Callable[[], object] = bool
) -> tuple[Any, int]:
    """Fetches what is stored of a prompt: places in the pool, and how many tokens came."""
    from array import array

    import torch

    controller.prefetch(request, array("q", [*tokens, 7, 7, 7]), None, [])
    found = controller.prefetch_hit_queue.get(timeout=100)
    between()
    if not found.storage_hit_count:
        return torch.empty(0, dtype=torch.int64), 0
    places = controller.mem_pool_host.alloc(found.storage_hit_count)
    found.host_indices = places
    controller.prefetch_buffer.put(found)
    count = 0
    while True:
        told = controller.ack_prefetch_queue.get(timeout=100)
        # The last word about a request has no count.
        count = count if told.completed_tokens is None else told.completed_tokens
        if told.completed_req:
            return places, count
