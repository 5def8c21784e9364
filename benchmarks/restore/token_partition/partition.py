"""The token-wise partition, which the paper compares with its own (HCache, section 4.1.1).

Every layer restores some tokens from hidden states and the others by the complement.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self

from engine_adapters.restore.layer_costs import LayerCosts
from engine_adapters.restore.partition import hcache_partition
from engine_adapters.restore.ranges import TokenRange
from engine_adapters.restore.source import Source


class TokenPart(NamedTuple):
    """Consecutive tokens, at least one, that all layers restore from ``source``."""

    source: Source
    tokens: TokenRange

    def chunks(self, chunk_tokens: int, *, chunk_count: int) -> range:
        """Which of the history's ``chunk_count`` chunks have tokens of this part.

        The first one may have tokens of the part before as well: a chunk that the partition
        cuts is needed by both.
        """
        first = min(self.tokens.first // chunk_tokens, chunk_count)
        return range(first, min(-(-self.tokens.stop // chunk_tokens), chunk_count))

    def reached(self, chunk_tokens: int, *, stop_chunk: int) -> int:
        """The token behind those that are there when all chunks below ``stop_chunk`` came."""
        return max(self.tokens.first, min(self.tokens.stop, stop_chunk * chunk_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPartition:
    """``hidden_count`` tokens from hidden states, ``other_count`` tokens by ``other``.

    Computed tokens are the first of the sequence, because a token's states depend on the
    tokens before it; loaded ones are the last. Raises ValueError.
    """

    hidden_count: int
    other_count: int
    other: Source

    def __post_init__(self) -> None:
        if min(self.hidden_count, self.other_count) < 0 or self.token_count == 0:
            raise ValueError(f"{self.hidden_count} and {self.other_count} tokens are no partition")
        if self.other is Source.HIDDEN:
            raise ValueError("the complement of hidden states is kv or compute")

    @property
    def token_count(self) -> int:
        """Tokens in all."""
        return self.hidden_count + self.other_count

    @property
    def parts(self) -> tuple[TokenPart, ...]:
        """One or two parts in the order of their tokens; none of them is empty."""
        counts = [(Source.HIDDEN, self.hidden_count), (self.other, self.other_count)]
        if self.other is Source.COMPUTE:
            counts.reverse()
        first, parts = 0, []
        for source, token_count in counts:
            if token_count:
                parts.append(TokenPart(source, TokenRange(first, first + token_count)))
            first += token_count
        return tuple(parts)

    @classmethod
    def balanced(cls, costs: LayerCosts, token_count: int) -> Self:
        """The formulas of section 4.1.2 over tokens; ``costs`` are those of all of them."""
        partition = hcache_partition(costs, token_count)
        return cls(
            hidden_count=partition.main_count,
            other_count=partition.other_count,
            other=partition.other,
        )

    def rounded(self, multiple: int) -> Self:
        """With the multiple nearest to ``hidden_count`` (section 6.3.2), the higher of two.

        Raises ValueError for a multiple below 1.
        """
        if multiple < 1:
            raise ValueError(f"tokens cannot be rounded to a multiple of {multiple}")
        nearest = (2 * self.hidden_count + multiple) // (2 * multiple) * multiple
        hidden_count = min(nearest, self.token_count)
        return type(self)(
            hidden_count=hidden_count,
            other_count=self.token_count - hidden_count,
            other=self.other,
        )


def predict_tokens_s(
    partition: TokenPartition,
    *,
    layer_count: int,
    costs_of: Callable[[int], LayerCosts],
    project_s: Callable[[int], float] | None = None,
) -> float:
    """Duration in seconds under the pipeline of ``predict_s``, layer by layer (figure 8c).

    ``costs_of`` gives the costs of one layer for a number of tokens. ``project_s`` takes the
    place of its ``project_s``: seconds of one layer's projection, which need not be
    proportional to the tokens (figure 13b). The computed tokens of a layer wait for no read.
    """
    layer_read_s = layer_taken_s = layer_computed_s = 0.0
    if partition.hidden_count:
        costs = costs_of(partition.hidden_count)
        layer_read_s += costs.io_hidden_s
        layer_taken_s = project_s(partition.hidden_count) if project_s else costs.project_s
    if partition.other_count:
        costs = costs_of(partition.other_count)
        if partition.other is Source.KV:
            layer_read_s += costs.io_kv_s
            layer_taken_s += costs.load_s
        else:
            layer_computed_s = costs.compute_s
    read_s = computed_s = 0.0
    for _ in range(layer_count):
        read_s += layer_read_s
        computed_s += layer_computed_s
        if layer_read_s:
            computed_s = max(computed_s, read_s) + layer_taken_s
    return computed_s
