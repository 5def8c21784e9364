"""Causal attention of tokens of a sequence over what lies before them."""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def causal_mask(query_count: int, key_count: int, device: torch.device) -> Tensor | None:
    """Which keys each of the last ``query_count`` of ``key_count`` tokens may see.

    Shape [query_count, key_count], bool. None where no mask is needed: a single query
    sees everything, and a square is what the kernels mask by themselves.
    """
    if query_count in {1, key_count}:
        return None
    visible = torch.ones(query_count, key_count, dtype=torch.bool, device=device)
    return visible.tril_(key_count - query_count)


def scattered_mask(positions: Tensor, first_key: int, stop_key: int) -> Tensor | None:
    """Which keys from ``first_key`` to ``stop_key - 1`` tokens at ``positions`` may see.

    Shape [positions, keys], bool. ``positions`` is [tokens], int64, and ends with
    ``stop_key - 1``. None where a single token sees everything.
    """
    if len(positions) == 1:
        return None
    keys = torch.arange(first_key, stop_key, device=positions.device)
    return keys <= positions.unsqueeze(1)


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention output [queries, heads, head_dim].

    ``queries`` is [queries, heads, head_dim]; ``keys`` and ``values`` are [tokens,
    kv_heads, head_dim] and end with the last query's own token. ``mask`` is that of
    ``causal_mask`` or ``scattered_mask`` for the same tokens.
    """
    output = scaled_dot_product_attention(
        queries.transpose(0, 1).unsqueeze(0),
        keys.transpose(0, 1).unsqueeze(0),
        values.transpose(0, 1).unsqueeze(0),
        attn_mask=mask,
        is_causal=mask is None and queries.shape[0] > 1,
        enable_gqa=queries.shape[1] != keys.shape[1],
    )
    return output.squeeze(0).transpose(0, 1)
