"""First weights that recall already, roughly, so that training need not find out how.

Recall is the work of two heads, one behind the other (Olsson et al., "In-context Learning and
Induction Heads", 2022). In the first layer a head notes beside each token which one stands before
it. In the second layer heads look for the token that is asked for among these notes, and copy what
they find there. Each is of no use alone, so a network with random weights finds them late: in a
training of two hours, not at all. Here they stand in the first weights, and training refines them.
Weights that begin as what they are to become are known as mimetic (Trockman and Kolter, ICML 2023).
"""

import math

import torch
from torch import Tensor

from benchmarks.training.heads import look_back, orthonormal, slow_dimensions
from benchmarks.training.network import Llama

STREAM = 4.0
"""Length of an embedding's own part, and of the common one.

With 1, steps of the size that matrices take would soon outgrow what stands here at first.
"""
NOTING_HEADS = 3
"""Of the first layer: they note the tokens one, two and three places before."""
NOTING_NATS = 4.0
"""By how much each prefers its place to those next to it."""
MATCH_NATS = 8.0
"""By how much a match is preferred to tokens that have nothing in common."""
MATCHING_HEADS = 2
COPY_GAIN = 2.0
"""Length of what they copy, beside 1 of a token's own embedding."""
BRANCH_GAIN = 0.2
"""Of all other outputs, which are noise at first."""


@torch.no_grad()
def plant_induction(network: Llama, *, seed: int) -> None:
    """Changes the first weights of ``network``, of two layers at least; equal seeds, equal weights.

    Every embedding becomes the sum of two parts of equal length: its own, and one that all share.
    Llamas have no bias, so what a head knows of positions alone hangs on the common part.
    """
    _Planter(network, seed).plant()


class _Planter:
    def __init__(self, network: Llama, seed: int) -> None:
        self._network = network
        self._shape = network.shape
        self._generator = torch.Generator().manual_seed(seed)
        signs = torch.randn(self._shape.hidden_size, generator=self._generator).sign()
        self._common = signs / math.sqrt(self._shape.hidden_size)

    def plant(self) -> None:
        embedding = self._network.weight("model.embed_tokens")
        embedding -= torch.outer(embedding @ self._common, self._common)
        embedding /= embedding.norm(dim=-1, keepdim=True)
        embedding += self._common
        embedding *= STREAM
        # The same matrix says what comes next: its logits are to stay as they were.
        self._network.weight("model.norm").div_(STREAM)
        for layer in range(self._shape.layer_count):
            for name in ("self_attn.o_proj", "mlp.down_proj"):
                self._network.weight(f"model.layers.{layer}.{name}").mul_(BRANCH_GAIN)
        pairs = [(self._directions(), self._directions()) for _ in range(self._noting_heads)]
        for head, (read, noted) in enumerate(pairs):
            self._plant_noting(head, head + 1, read, noted)
        for head in range(min(MATCHING_HEADS, self._shape.head_count)):
            self._plant_match(head, *pairs[0])

    def _plant_noting(self, head: int, distance: int, read: Tensor, noted: Tensor) -> None:
        """What it reads of the token ``distance`` places before, it notes in other directions."""
        size = self._shape.head_dim
        # Of a normalised embedding, of whose two parts each has this length.
        length = math.sqrt(self._shape.hidden_size / 2)
        queries, keys = look_back(self._shape, distance, nats=NOTING_NATS)
        rows = slice(head * size, (head + 1) * size)
        query, key, value, output = self._network.attention_weights(0)
        query[rows] = torch.outer(queries, self._common) / length
        key[rows] = torch.outer(keys, self._common) / length
        value[rows] = read
        output[:, rows] = STREAM * noted.T / (length * self._seen_share)

    def _plant_match(self, head: int, read: Tensor, noted: Tensor) -> None:
        """Queries have a token's own embedding, keys what was noted beside it."""
        shape = self._shape
        slow = slow_dimensions(shape)
        # Embedding, common part and notes have the same length when the norm has gone over them.
        length = math.sqrt(shape.hidden_size / (2 + self._noting_heads))
        drawn = torch.randn(shape.head_dim, len(slow), generator=self._generator)
        mixed = orthonormal(drawn).T
        matched = length**2 * self._seen_share * len(slow) / shape.head_dim
        height = math.sqrt(MATCH_NATS * math.sqrt(shape.head_dim) / matched)
        rows = slice(head * shape.head_dim, (head + 1) * shape.head_dim)
        query, key, value, output = self._network.attention_weights(1)
        for weights, directions in ((query, read), (key, noted)):
            weights[rows] = 0.0
            weights[rows][slow] = height * mixed @ directions
        copied = self._directions()
        value[rows] = copied
        output[:, rows] = STREAM * COPY_GAIN * copied.T / (length * self._seen_share)

    @property
    def _noting_heads(self) -> int:
        return min(NOTING_HEADS, self._shape.head_count)

    @property
    def _seen_share(self) -> float:
        """Of a vector's length, which part a head sees."""
        return math.sqrt(self._shape.head_dim / self._shape.hidden_size)

    def _directions(self) -> Tensor:
        """As many as a head has dimensions, [head_dim, hidden], none like the common one."""
        drawn = torch.randn(
            self._shape.hidden_size, self._shape.head_dim, generator=self._generator
        )
        drawn -= torch.outer(self._common, self._common @ drawn)
        return orthonormal(drawn).T
