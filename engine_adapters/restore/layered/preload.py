"""Whether new tokens are computed while the layers of their history load, and from when on.

AttentionStore, section 3.2.1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Self

from engine_adapters.restore.chunk_costs import ComputeCost
from engine_adapters.restore.layer_costs import LayerCosts
from engine_adapters.restore.source import Source

LEAST_GAIN = 0.05
"""Of the time until the first token: what layer by layer has to save. Whole tokens that came stay
in use when the store falls silent, and layers do not; for less that is not given up."""


class Preload(StrEnum):
    """In which order the states of a window come."""

    AUTO = "auto"
    """As the costs say; span after span where they are not known."""
    LAYERS = "layers"
    """Layer after layer of all tokens, while new tokens are computed."""
    SPANS = "spans"
    """Span after span, and new tokens are computed when all are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredLoad:
    """Seconds of one layer of a history: reading it, taking it into the cache, computing after it.

    ``load_s`` is T_load L_hist and ``prefill_s`` T_pref L_new of the paper, each over the number of
    layers; ``prefill_s`` is above 0. ``take_s`` is the copying and rotating, or projecting, which
    the paper does not count. Raises ValueError.
    """

    layer_count: int
    load_s: float
    take_s: float
    prefill_s: float

    def __post_init__(self) -> None:
        if self.layer_count < 1:
            raise ValueError(f"a model has at least 1 layer, not {self.layer_count}")
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{field.name} is {value}; a cost is a finite time of at least 0")

    @classmethod
    def of_costs(
        cls,
        sources: Sequence[Source],
        costs: LayerCosts,
        compute: ComputeCost,
        *,
        history_tokens: int,
        new_tokens: int,
        step_tokens: float,
    ) -> Self:
        """Means over layers from ``sources``, HIDDEN or KV each; ``costs`` are of the history."""
        layer_count = len(sources)
        hidden = sum(source is Source.HIDDEN for source in sources)
        kv = layer_count - hidden
        stop = history_tokens + new_tokens
        return cls(
            layer_count=layer_count,
            load_s=(hidden * costs.io_hidden_s + kv * costs.io_kv_s) / layer_count,
            take_s=(hidden * costs.project_s + kv * costs.load_s) / layer_count,
            prefill_s=compute.compute_s(history_tokens, stop, step_tokens) / layer_count,
        )

    @property
    def spans_s(self) -> float:
        """Until the first token, where nothing is computed before all layers are there."""
        rest = self.layer_count - 1
        loaded_s = self.load_s + rest * max(self.load_s, self.take_s) + self.take_s
        return loaded_s + self.layer_count * self.prefill_s

    @property
    def layers_s(self) -> float:
        """Until the first token, where each layer is computed while the next one loads."""
        rest, busy_s = self.layer_count - 1, self.take_s + self.prefill_s
        return self.load_s + rest * max(self.load_s, busy_s) + busy_s

    @property
    def buffer_layers(self) -> int:
        """Layers that must be there so that a prefill that begins then waits for no other.

        S_buf = B (T_load L_hist - T_pref L_new), in layers of the history, and as much more as a
        layer that is used must have come whole. 1 where layers come as fast as they are computed.
        """
        # A layer that comes while others are computed is taken by the side that computes.
        longer_s = self.load_s - self.take_s
        if longer_s <= self.prefill_s:
            return 1
        return math.ceil(self.layer_count - (self.layer_count - 1) * self.prefill_s / longer_s)

    def is_better(self, *, recompute_s: float) -> bool:
        """Whether layer by layer is worth it; ``recompute_s`` is computing everything.

        Where even so the store is slower than computing, it is not: spans are loaded as far as
        they come sooner than they are computed (``Stake``).
        """
        is_faster = self.layers_s <= (1 - LEAST_GAIN) * self.spans_s
        return is_faster and self.layers_s < recompute_s
