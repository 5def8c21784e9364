"""Causal attention of the newest tokens of a sequence over its whole history."""

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


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Attention output [queries, heads, head_dim].

    ``queries`` is [queries, heads, head_dim]; ``keys`` and ``values`` are [tokens,
    kv_heads, head_dim] and end with the queries' own tokens. ``mask`` is that of
    ``causal_mask`` for the same counts.
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
