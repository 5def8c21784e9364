"""Formats of pages for tests."""

from dataclasses import replace
from typing import Any

from engine_adapters.sglang.page_format import PageFormat, Rank

RANK = Rank(
    tensor_rank=0, tensor_size=1, first_layer=0, layer_count=4, context_rank=0, context_size=1
)
FRAGMENTS = (16 * 100, 16 * 60)
"""Bytes of keys and values of a page of 16 tokens, no multiples of anything."""


def make_format(fragments: tuple[int, ...] = FRAGMENTS, **changes: Any) -> PageFormat:
    options: dict[str, Any] = {
        "weights": "revision 1",
        "model": "model",
        "dtype": "bfloat16",
        "pool": "MHA page_first",
        "page_tokens": 16,
        "rank": RANK,
    }
    return PageFormat.of_pool(fragments, **{**options, **changes})


def of_rank(**changes: int) -> PageFormat:
    return make_format(rank=replace(RANK, **changes))
