"""Keys and values of all running sequences, one pool of token slots for every layer.

A sequence owns one contiguous range of slots, so its history is a plain view and
attention needs no page table. Keys lie here rotated, as attention wants them.
"""

import torch
from torch import Tensor

from engine_adapters.runner.model.model_config import ModelConfig


class KvCache:
    """``keys`` and ``values`` have shape [layers, slots, kv_heads, head_dim]."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        slot_count: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (config.layer_count, slot_count, config.kv_head_count, config.head_dim)
        # Filled rather than empty: the first touch of a page is paid here, not in a request.
        self.keys = torch.empty(shape, dtype=dtype, device=device).fill_(0)
        self.values = torch.empty(shape, dtype=dtype, device=device).fill_(0)

    def write(self, layer: int, first_slot: int, keys: Tensor, values: Tensor) -> None:
        """Puts rotated keys and values [tokens, kv_heads, head_dim] from ``first_slot`` on."""
        stop_slot = first_slot + keys.shape[0]
        self.keys[layer, first_slot:stop_slot] = keys
        self.values[layer, first_slot:stop_slot] = values

    def scatter(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Puts rotated keys and values [tokens, kv_heads, head_dim] into ``slots`` [tokens]."""
        self.keys[layer, slots] = keys
        self.values[layer, slots] = values

    def history(self, layer: int, first_slot: int, token_count: int) -> tuple[Tensor, Tensor]:
        """Views of ``token_count`` keys and values: [tokens, kv_heads, head_dim] each."""
        slots = slice(first_slot, first_slot + token_count)
        return self.keys[layer, slots], self.values[layer, slots]
