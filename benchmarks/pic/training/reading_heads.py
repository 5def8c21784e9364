"""First weights that answer already, roughly, so that training need not find out how.

In the first layer two heads note beside each token which tokens stand one and two places before
it (as in ``benchmarks.quality.training.induction``, with more layers behind it). In the second
layer heads find the token after what is asked for, and others the token after a class and any
word. In the third layer heads ask again for what the second layer has found: the second hop.

Where nothing matches, all of these attend to the first token of the prompt, an attention sink as
large models have it (Xiao et al., "Efficient Streaming Language Models with Attention Sinks",
2023). They know it by what is noted beside it: only a token without others before it is noted
beside itself. Entries that are computed on their own begin with such a token as well. EPIC
(section 4.2) says what that does to links, and it shows only in a model that has a sink.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.training.heads import look_back, orthonormal, slow_dimensions
from benchmarks.training.network import Llama

STREAM = 4.0
"""Length of an embedding's own part, and of the common one: large beside what a step changes."""
NOTING_NATS = 4.0
"""By how much a noting head prefers its place to those next to it."""
HOP_NATS = 12.0
"""By how much a match is preferred to tokens that have nothing in common."""
SECOND_HOP_NATS = 20.0
SINK_LEAD_NATS = 0.0
"""By how much the sink is preferred to a match: much attention goes there, as in large models."""
COPY_GAIN = 2.0
"""Length of what the second layer copies, beside 1 of a token's own embedding."""
SECOND_COPY_GAIN = 4.0
"""The third layer's, which is to outdo that."""
BRANCH_GAIN = 0.2
"""Of all other outputs, which are noise at first."""


@torch.no_grad()
def plant_reading(network: Llama, *, sink_id: int, seed: int) -> None:
    """Changes the first weights; equal seeds, equal weights.

    The network has three layers at least, four heads, and a hidden size above twice that of a
    head. ``sink_id`` is the token that prompts begin with.
    """
    _Planter(network, sink_id, seed).plant()


@dataclass(frozen=True, slots=True)
class _Match:
    """Heads of ``layer`` from ``head`` on that look for ``asked`` among the keys' ``noted``.

    Before the norm, a vector that asks has ``units`` of squared length, and the part that is asked
    for has ``asked_length``; keys have 4 units.
    """

    layer: int
    head: int
    asked: Tensor
    noted: Tensor
    nats: float
    gain: float
    units: int
    asked_length: float


class _Planter:
    """Parts of a vector: one that all tokens share, a token's own, and two notes of a head's size.

    They are orthogonal, so that none is noise to another.
    """

    def __init__(self, network: Llama, sink_id: int, seed: int) -> None:
        self._network = network
        self._shape = network.shape
        self._sink_id = sink_id
        self._generator = torch.Generator().manual_seed(seed)
        hidden, size = self._shape.hidden_size, self._shape.head_dim
        basis = orthonormal(self._normal(hidden, hidden)).T
        self._common, self._own = basis[0], basis[1 : hidden - 2 * size]
        self._notes = basis[hidden - 2 * size : hidden - size], basis[hidden - size :]
        mixed = orthonormal(self._normal(len(self._own), len(self._own)))
        # What two heads see of a token's own part: together all of it, with a small overlap.
        self._halves = mixed[:, :size].T @ self._own, mixed[:, -size:].T @ self._own
        self._seen_share = math.sqrt(size / len(self._own))

    def plant(self) -> None:
        shape = self._shape
        embedding = self._network.weight("model.embed_tokens")
        embedding.copy_(embedding @ self._own.T @ self._own)
        embedding /= embedding.norm(dim=-1, keepdim=True)
        first = embedding[self._sink_id].clone()
        embedding += self._common
        embedding *= STREAM
        # The same matrix says what comes next: its logits are to stay as they were.
        self._network.weight("model.norm").div_(STREAM)
        for layer in range(shape.layer_count):
            for name in ("self_attn.o_proj", "mlp.down_proj"):
                self._network.weight(f"model.layers.{layer}.{name}").mul_(BRANCH_GAIN)
        for head in range(len(self._notes)):
            self._plant_noting(head)
        read, (one_back, two_back) = self._halves[0] / self._seen_share, self._notes
        for match in (
            _Match(1, 0, read, one_back, HOP_NATS, COPY_GAIN, 4, 1.0),
            _Match(1, 2, one_back, two_back, HOP_NATS, COPY_GAIN, 4, 1.0),
            _Match(2, 0, read, one_back, SECOND_HOP_NATS, SECOND_COPY_GAIN, 8, COPY_GAIN),
        ):
            for number, copied in enumerate(self._halves):
                self._plant_match(match, match.head + number, copied, first)

    def _plant_noting(self, head: int) -> None:
        """Notes what it reads of the token ``head + 1`` places before."""
        # Of a normalised embedding, of whose two parts each has this length.
        length = math.sqrt(self._shape.hidden_size / 2)
        queries, keys = look_back(self._shape, head + 1, nats=NOTING_NATS)
        rows = self._rows(head)
        query, key, value, output = self._network.attention_weights(0)
        query[rows] = torch.outer(queries, self._common) / length
        key[rows] = torch.outer(keys, self._common) / length
        value[rows] = self._halves[0]
        output[:, rows] = STREAM * self._notes[head].T / (length * self._seen_share)

    def _plant_match(self, match: _Match, head: int, copied: Tensor, first: Tensor) -> None:
        """Copies half of the token that matches, or nothing of the sink."""
        hidden, size = self._shape.hidden_size, self._shape.head_dim
        slow = slow_dimensions(self._shape)
        asking, noting = math.sqrt(hidden / match.units), math.sqrt(hidden / 4)
        mixed = orthonormal(self._normal(size, len(slow))).T
        direction = self._normal(len(slow), 1)[:, 0]
        direction /= direction.norm()
        found = asking * match.asked_length * noting * len(slow) / size
        match_height = math.sqrt(match.nats * math.sqrt(size) / found)
        sink_nats = match.nats + SINK_LEAD_NATS
        sink_height = math.sqrt(sink_nats * math.sqrt(size) / (asking * noting * math.sqrt(2)))
        # Beside a first token the notes name that token itself.
        mark = first + self._notes[0].T @ (self._halves[0] @ first) / self._seen_share
        mark /= mark.norm()
        rows = self._rows(head)
        query, key, value, output = self._network.attention_weights(match.layer)
        for weights, seen, kept in ((query, match.asked, self._common), (key, match.noted, mark)):
            weights[rows] = 0.0
            planted = match_height * mixed @ seen + sink_height * torch.outer(direction, kept)
            weights[rows][slow] = planted
        value[rows] = copied - torch.outer(copied @ first, first)
        # A match gets what the sink leaves.
        left = 1 / (1 + math.exp(SINK_LEAD_NATS))
        output[:, rows] = STREAM * match.gain * copied.T / (noting * left)

    def _rows(self, head: int) -> slice:
        size = self._shape.head_dim
        return slice(head * size, (head + 1) * size)

    def _normal(self, rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=self._generator)
