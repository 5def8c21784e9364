"""How a page of SGLang's host pool becomes a chunk of the store. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvstored_contract.layout import (
    LayerState,
    Rotary,
    Shard,
    StateKind,
    StateLayout,
    hash_fields,
)

TESTED_VERSIONS = ("0.5.23",)
"""Releases of SGLang that the tests of this package passed with."""

TESTED_LAYOUTS = ("layer_first", "page_first", "page_first_direct", "page_head")
"""Layouts of the host pool; pages of one are a miss for all others."""

ADAPTER_VERSION = "kvstored.sglang.1"
"""Changes whenever the backend stores other bytes for the same pages."""


class PageError(ValueError):
    """A pool whose pages are not stored; the message says why."""


def values_dtype(pool_dtype: str, kv_dtype: str) -> str:
    """The dtype of what a pool keeps, for the layout.

    SGLang keeps every dtype of 8 bits as ``uint8``: the bytes do not say of which they are, and
    ``kv_dtype``, the value of --kv-cache-dtype, must. Raises PageError.
    """
    if "int" not in pool_dtype:
        return pool_dtype
    if not kv_dtype:
        raise PageError(
            f"its pool keeps values as {pool_dtype}, which does not say what they are: set "
            "kv_dtype in --hicache-storage-backend-extra-config to the value of --kv-cache-dtype"
        )
    return f"{pool_dtype}_{kv_dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Whose pages these are. Ranks that hold the same states (MLA) are rank 0 of 1."""

    tensor_rank: int
    tensor_size: int
    first_layer: int
    layer_count: int
    context_rank: int
    context_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFormat:
    """The layout that the store knows, and the fragments of a page in the pool.

    A slice is one fragment: keys or values of all layers, or of one where the pool has each layer
    apart. Its bytes are as in the pool. Pages of one ``generation`` are a miss for all others.
    """

    layout: StateLayout
    fragment_bytes: tuple[int, ...]
    generation: str = ""

    @classmethod
    def of_pool(
        cls,
        fragment_bytes: Sequence[int],
        *,
        weights: str,
        model: str,
        dtype: str,
        pool: str,
        page_tokens: int,
        rank: Rank,
    ) -> "PageFormat":
        """Format of pages whose fragments have these sizes, in the pool's own order.

        ``pool`` names the layout of the pool and its class. Raises PageError, and LayoutError for
        sizes that no store takes.
        """
        if any(size % page_tokens for size in fragment_bytes):
            raise PageError(f"a fragment of {fragment_bytes} bytes has no {page_tokens} tokens")
        identity = (
            *(ADAPTER_VERSION, weights, model, pool),
            f"context rank {rank.context_rank} of {rank.context_size}",
        )
        layout = StateLayout(
            model=hash_fields([part.encode() for part in identity]).hex(),
            dtype=dtype,
            layers=tuple(LayerState(StateKind.KV, size // page_tokens) for size in fragment_bytes),
            chunk_tokens=page_tokens,
            rotary=Rotary.ROTATED,
            shard=Shard(
                tensor_rank=rank.tensor_rank,
                tensor_size=rank.tensor_size,
                pipeline_first_layer=rank.first_layer,
                pipeline_layer_count=rank.layer_count,
            ),
        )
        return cls(layout=layout, fragment_bytes=tuple(fragment_bytes))

    def keys_of(self, names: Sequence[str], *, namespace: str) -> list[bytes]:
        """Keys of the pages that SGLang names: digests of all tokens up to their ends."""
        fixed = [ADAPTER_VERSION.encode(), namespace.encode(), self.layout.layout_id]
        if self.generation:
            fixed.append(self.generation.encode())
        return [hash_fields([*fixed, name.encode()]) for name in names]
