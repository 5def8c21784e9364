"""The class that SGLang loads: a storage of HiCache over the SDK."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage

from engine_adapters.layout_check import LayoutCheck
from engine_adapters.sglang.page_format import (
    TESTED_LAYOUTS,
    PageError,
    PageFormat,
    Rank,
    values_dtype,
)
from engine_adapters.sglang.page_store import PageStore
from engine_adapters.weights_identity import UnknownWeightsError, weights_identity
from kvstored_client import Client, LayoutError

LOGGER = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


class KvstoredBackend(HiCacheStorage):
    """Keeps pages of one rank's host pool in the daemon of this node.

    Own keys of ``--hicache-storage-backend-extra-config``: ``socket`` (default: KVSTORED_SOCKET),
    ``arena_bytes``, ``kv_dtype``, which a KV cache of 8 bits needs, and ``weights``, which names
    the model's weights. Without it they are those of the folder that an absolute ``--model-path``
    names. SGLang calls it on threads of its controller. Nothing raises because of the store: what
    fails is a miss, and so is everything where the weights or the pool are unknown; a warning
    says so.
    """

    def __init__(self, storage_config: Any, kwargs: dict[str, Any]) -> None:
        self._config = storage_config
        self._options = dict(storage_config.extra_config or {})
        client = kwargs.get("client")
        self._client = client or Client(
            self._options.get("socket"),
            arena_bytes=self._options.get("arena_bytes", "512MiB"),
            name=f"SGLang rank {storage_config.tp_rank}",
        )
        self._pages: PageStore | None = None

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """Takes the pool, whose pages are stored from now on."""
        super().register_mem_pool_host(mem_pool_host)
        try:
            found = self._format_of(mem_pool_host)
        except (PageError, LayoutError, UnknownWeightsError, OSError) as error:
            self._pages = None
            LOGGER.warning("kvstored saves and restores nothing: %s", error)
            return
        self._pages = PageStore(client=self._client, format=found)
        if self._client.available():
            LayoutCheck(self._client, [found.layout], LOGGER).is_refused()

    def batch_exists(self, keys: list[str], extra_info: Any = None) -> int:
        """How many leading pages are stored."""
        pages = self._pages
        return 0 if pages is None else _or_miss(0, lambda: pages.count(keys))

    def batch_set_v1(
        self, keys: list[str], host_indices: torch.Tensor, extra_info: Any = None
    ) -> list[bool]:
        """Stores pages of the pool; which can be read from now on."""
        pages, missed = self._pages, [False] * len(keys)
        before = getattr(extra_info, "prefix_keys", None) or [""]
        if pages is None:
            return missed
        return _or_miss(
            missed,
            lambda: pages.store(keys, self._addresses(keys, host_indices), parent=before[-1]),
        )

    def batch_get_v1(
        self, keys: list[str], host_indices: torch.Tensor, extra_info: Any = None
    ) -> list[bool]:
        """Loads pages into the pool; which are there now."""
        pages, missed = self._pages, [False] * len(keys)
        if pages is None:
            return missed
        return _or_miss(missed, lambda: pages.load(keys, self._addresses(keys, host_indices)))

    def exists(self, key: str) -> bool:
        """Whether a page is stored."""
        return self.batch_exists([key]) == 1

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> None:
        """A miss: pages go by ``batch_get_v1`` only."""

    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[None]:
        """Misses: see ``get``."""
        return [None] * len(keys)

    def set(
        self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None
    ) -> bool:
        """Stores nothing: pages go by ``batch_set_v1`` only."""
        return False

    def batch_set(
        self,
        keys: list[str],
        values: Any = None,
        target_locations: Any = None,
        target_sizes: Any = None,
    ) -> bool:
        """Stores nothing: see ``set``."""
        return False

    def clear(self) -> None:
        """Finds nothing from now on of what was stored before: SGLang asks it for new weights."""
        pages = self._pages
        if pages is None:
            return
        if self._config.is_mla_model and self._config.tp_size > 1:
            # Ranks that read what rank 0 stores would have to agree on a name for what is new.
            self._pages = None
            LOGGER.warning("kvstored saves and restores nothing until a restart: it was cleared")
        else:
            self._pages = pages.cleared()

    def close(self) -> None:
        """Ends the session."""
        self._client.close()

    def _format_of(self, pool: Any) -> PageFormat:
        config = self._config
        if pool.layout not in TESTED_LAYOUTS:
            raise PageError(f"no test has seen a host pool of the layout {pool.layout!r}")
        if config.should_split_heads:
            raise PageError("ranks that share pages of heads (tp_lcm_size) are not supported")
        if config.dcp_size > 1:
            raise PageError("ranks that share pages of tokens (dcp_size) are not supported")
        _, sizes = pool.get_page_buffer_meta(torch.arange(pool.logical_page_size))
        is_replica = config.is_mla_model
        return PageFormat.of_pool(
            sizes,
            weights=self._options.get("weights") or _weights_of(config.model_name),
            model=str(config.model_name),
            dtype=values_dtype(
                str(pool.dtype).removeprefix("torch."), self._options.get("kv_dtype", "")
            ),
            pool=f"{type(pool).__name__} {pool.layout}",
            page_tokens=pool.logical_page_size,
            rank=Rank(
                tensor_rank=0 if is_replica else config.tp_rank,
                tensor_size=1 if is_replica else config.tp_size,
                first_layer=pool.start_layer or 0,
                layer_count=pool.layer_num,
                context_rank=config.attn_cp_rank,
                context_size=config.attn_cp_size,
            ),
        )

    def _addresses(self, keys: Sequence[str], host_indices: torch.Tensor) -> list[list[int]]:
        """Of the fragments of each page."""
        pointers, _ = self.mem_pool_host.get_page_buffer_meta(host_indices)
        count = len(pointers) // len(keys)
        return [pointers[first : first + count] for first in range(0, len(pointers), count)]


def _weights_of(model_name: str) -> str:
    """Digest of the folder; raises UnknownWeightsError.

    SGLang names a backend the model as it is served. Only an absolute path is no such name.
    """
    if not Path(model_name).is_absolute():
        raise UnknownWeightsError(
            f"{model_name!r} may be a name that the model is served by: set weights in "
            "--hicache-storage-backend-extra-config"
        )
    return weights_identity(model_name, commit=None)


def _or_miss(missed: AnswerT, work: Callable[[], AnswerT]) -> AnswerT:
    """What the work returns; ``missed`` where it fails."""
    try:
        return work()
    except Exception:
        LOGGER.exception("a call of kvstored's backend counts as a miss")
        return missed
