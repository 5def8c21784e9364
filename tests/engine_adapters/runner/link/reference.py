"""A Llama that is computed densely with explicit masks, for prompts that are linked.

Shares no code with the runner nor with its plans: weights come from transformers, and each pass
has all keys of all its tokens and a mask that says who sees whom.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from transformers import LlamaForCausalLM


@dataclass
class Pass:
    """``logits`` [tokens, vocab]; ``keys`` (unrotated), ``values`` and ``attention`` of each layer.

    Attention is [rows, columns], summed over heads.
    """

    logits: Tensor
    keys: list[Tensor]
    values: list[Tensor]
    attention: list[Tensor]


class DenseLlama:
    """Float32, one sequence, nothing kept between calls."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        self._model = model
        config = model.config
        self._heads = config.num_attention_heads
        self._kv_heads: int = config.num_key_value_heads or config.num_attention_heads
        self._head_dim = config.hidden_size // config.num_attention_heads
        halves = torch.arange(0, self._head_dim, 2).float() / self._head_dim
        self._speeds = 1.0 / (config.rope_parameters["rope_theta"] ** halves)
        self.least_gap = torch.inf
        """Of the last call of ``asked``: how near those ranges were whose order matters."""

    @torch.no_grad()
    def run(
        self,
        token_ids: Sequence[int],
        mask: Tensor,
        *,
        given: dict[int, tuple[Pass, int]] | None = None,
    ) -> Pass:
        """One pass; ``mask`` [tokens, tokens] is true where a row sees a column.

        Keys and values of the positions in ``given`` are those of a row of another pass.
        """
        inner, count = self._model.model, len(token_ids)
        hidden = inner.embed_tokens.weight[torch.tensor(token_ids)]
        kept_keys, kept_values, attended = [], [], []
        for number, layer in enumerate(inner.layers):
            attention = layer.self_attn
            normed = layer.input_layernorm(hidden)
            queries = attention.q_proj(normed).view(count, self._heads, -1)
            keys = attention.k_proj(normed).view(count, self._kv_heads, -1)
            values = attention.v_proj(normed).view(count, self._kv_heads, -1)
            for position, (other, row) in (given or {}).items():
                keys[position] = other.keys[number][row]
                values[position] = other.values[number][row]
            kept_keys.append(keys)
            kept_values.append(values)
            shared = self._heads // self._kv_heads
            turned = self._rotated(keys).repeat_interleave(shared, dim=1)
            scores = torch.einsum("qhd,khd->hqk", self._rotated(queries), turned)
            scores = (scores / self._head_dim**0.5).masked_fill(~mask, -torch.inf)
            weights = scores.softmax(-1)
            attended.append(weights.sum(0))
            mixed = torch.einsum("hqk,khd->qhd", weights, values.repeat_interleave(shared, dim=1))
            hidden = hidden + attention.o_proj(mixed.reshape(count, -1))
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        logits = self._model.lm_head(inner.norm(hidden))
        return Pass(logits, kept_keys, kept_values, attended)

    def plain(self, token_ids: Sequence[int]) -> Tensor:
        """Logits after the last token of an ordinary prefill."""
        return self.run(token_ids, causal(len(token_ids))).logits[-1]

    def block_diagonal(self, parts: Sequence["ReferencePart"], new_ids: Sequence[int]) -> Tensor:
        """Logits where tokens of an entry see nothing but their entry, and others all before them.

        ``new_ids`` follow the parts. The last token sees all.
        """
        token_ids = [*ids_of(parts), *new_ids]
        mask = causal(len(token_ids))
        for part, positions in placed(parts):
            if part.is_entry:
                mask[positions.start : positions.stop, : positions.start] = False
        mask[-1] = True
        return self.run(token_ids, mask).logits[-1]

    def linked(
        self, parts: Sequence["ReferencePart"], computed: set[int], new_ids: Sequence[int] = ()
    ) -> Tensor:
        """Logits by definition (EPIC, section 4.2.1).

        Tokens of entries that are not ``computed`` have the keys and values of a pass over their
        entry alone, after its sink. All others, ``new_ids`` after the parts among them, see all
        before them.
        """
        return self._linked(parts, computed, new_ids).logits[-1]

    def _linked(
        self, parts: Sequence["ReferencePart"], computed: set[int], new_ids: Sequence[int] = ()
    ) -> Pass:
        given: dict[int, tuple[Pass, int]] = {}
        for part, positions in placed(parts):
            if part.is_entry and part.token_ids:
                alone = self._alone(part)
                for row, position in enumerate(positions):
                    if position not in computed:
                        given[position] = (alone, row)
        token_ids = [*ids_of(parts), *new_ids]
        return self.run(token_ids, causal(len(token_ids)), given=given)

    def _alone(self, part: "ReferencePart") -> Pass:
        """A pass over an entry, without the rows of its sink."""
        every = [*part.sink_ids, *part.token_ids]
        alone, sink = self.run(every, causal(len(every))), len(part.sink_ids)
        keys, values = ([one[sink:] for one in kept] for kept in (alone.keys, alone.values))
        return Pass(alone.logits[sink:], keys, values, [])

    def asked(self, parts: Sequence["ReferencePart"], k: int, *, boundary_k: int) -> set[int]:
        """What query-k computes, or with ``boundary_k`` what split does."""
        computed = boundary_tokens(parts, boundary_k)
        count = len(boundary_tokens(parts, k)) - len(computed)
        linked = self._linked(parts, computed)
        filled = [(part, positions) for part, positions in placed(parts) if positions]
        last, positions = filled[-1]
        asking = [positions[-1]] if last.is_entry else []
        for part, positions in reversed(filled):
            if part.is_entry:
                break
            asking += positions
        layers = len(linked.attention)
        middle = linked.attention[layers // 4 : layers - layers // 4]
        scores = sum(one[asking].sum(0) for one in middle)
        assert isinstance(scores, Tensor)
        ranges: list[tuple[float, list[int]]] = []
        for part, positions in filled:
            for first in range(0, len(positions), 8) if part.is_entry else ():
                left = [n for n in positions[first : first + 8] if n not in computed]
                if left:
                    ranges.append((float(scores[left].mean()), left))
        ranges.sort(key=lambda one: -one[0])
        chosen = [position for _, left in ranges for position in left][:count]
        self.least_gap, start = torch.inf, 0
        for (score, left), (next_score, next_left) in pairwise(ranges):
            stop = start + len(left)
            # Whether another order of the two would choose other tokens.
            if start < count < stop + len(next_left):
                self.least_gap = min(self.least_gap, score - next_score)
            start = stop
        return computed | set(chosen)

    def deviating(self, parts: Sequence["ReferencePart"], percent: int) -> set[int]:
        """What cacheblend computes: a share of entries' tokens, what is new, and the last token."""
        every = self.run(ids_of(parts), causal(len(ids_of(parts))))
        computed, deviations, entry_tokens = {len(ids_of(parts)) - 1}, {}, 0
        for part, positions in placed(parts):
            if not part.is_entry:
                computed.update(positions)
                continue
            if not part.token_ids:
                continue
            alone = self._alone(part)
            entry_tokens += len(positions)
            for row, position in enumerate(positions):
                keys = every.keys[1][position] - alone.keys[1][row]
                values = every.values[1][position] - alone.values[1][row]
                deviations[position] = float(keys.square().sum() + values.square().sum())
        wanted = -(-entry_tokens * percent // 100)
        ranked = sorted(deviations.keys() - computed, key=lambda one: -deviations[one])
        return computed | set(ranked[:wanted])

    def _rotated(self, vectors: Tensor) -> Tensor:
        """Row r of [tokens, heads, dim] at position r."""
        angles = torch.outer(torch.arange(len(vectors)).float(), self._speeds)
        angles = torch.cat([angles, angles], dim=1)[:, None]
        half = self._head_dim // 2
        turned = torch.cat([-vectors[..., half:], vectors[..., :half]], dim=-1)
        return vectors * angles.cos() + turned * angles.sin()


@dataclass(frozen=True)
class ReferencePart:
    """An entry, or new tokens."""

    token_ids: tuple[int, ...]
    is_entry: bool
    sink_ids: tuple[int, ...] = ()


def causal(count: int) -> Tensor:
    return torch.ones(count, count, dtype=torch.bool).tril()


def ids_of(parts: Sequence[ReferencePart]) -> list[int]:
    return [token_id for part in parts for token_id in part.token_ids]


def placed(parts: Sequence[ReferencePart]) -> list[tuple[ReferencePart, range]]:
    """Each part with the positions of its tokens."""
    found, first = [], 0
    for part in parts:
        found.append((part, range(first, first + len(part.token_ids))))
        first += len(part.token_ids)
    return found


def boundary_tokens(parts: Sequence[ReferencePart], k: int) -> set[int]:
    """What attnlink-k computes: half of k on both sides of where two parts meet, and what is new.

    And the last token of all.
    """
    filled = [(part, positions) for part, positions in placed(parts) if positions]
    found = {filled[-1][1][-1]}
    for number, (part, positions) in enumerate(filled):
        for place, position in enumerate(positions):
            after = len(positions) - 1 - place
            is_head = number > 0 and place < k // 2
            is_tail = number + 1 < len(filled) and after < k // 2
            if is_head or is_tail or not part.is_entry:
                found.add(position)
    return found
