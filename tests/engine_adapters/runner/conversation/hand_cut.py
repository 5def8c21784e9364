"""A Llama that is computed token by token with a cache of its own, which is cut by hand.

Shares no code with the runner: weights come from transformers, keys are kept without rotation and
rotated at the position that each has now, whenever a token attends to them.
"""

import copy
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor
from transformers import LlamaForCausalLM


class HandCutLlama:
    """Float32, one sequence. ``keys`` (unrotated) and ``values`` have a row for each token left."""

    def __init__(self, model: LlamaForCausalLM) -> None:
        self._model = model
        config = model.config
        self._heads = config.num_attention_heads
        self._kv_heads: int = config.num_key_value_heads or config.num_attention_heads
        self._head_dim = config.hidden_size // config.num_attention_heads
        halves = torch.arange(0, self._head_dim, 2).float() / self._head_dim
        self._speeds = 1.0 / (10_000.0**halves)
        empty = torch.empty(0, self._kv_heads, self._head_dim)
        self.keys = [empty for _ in model.model.layers]
        self.values = [empty for _ in model.model.layers]

    @property
    def count(self) -> int:
        """Tokens that are left."""
        return len(self.keys[0])

    def copied(self) -> Self:
        """One that goes on by itself. What is there is never changed in place."""
        copied = copy.copy(self)
        copied.keys, copied.values = list(self.keys), list(self.values)
        return copied

    def keep(self, positions: list[int]) -> None:
        """Forgets all other positions."""
        self.keys = [keys[positions] for keys in self.keys]
        self.values = [values[positions] for values in self.values]

    def rotated(self, vectors: Tensor) -> Tensor:
        """Row r of [tokens, heads, dim] at position r."""
        angles = torch.outer(torch.arange(len(vectors)).float(), self._speeds)
        angles = torch.cat([angles, angles], dim=1)[:, None]
        half = self._head_dim // 2
        turned = torch.cat([-vectors[..., half:], vectors[..., :half]], dim=-1)
        return vectors * angles.cos() + turned * angles.sin()

    @torch.no_grad()
    def feed(self, token_id: int) -> Tensor:
        """Adds a token; the logits after it."""
        inner = self._model.model
        hidden = inner.embed_tokens.weight[token_id]
        for number, layer in enumerate(inner.layers):
            attention = layer.self_attn
            normed = layer.input_layernorm(hidden)
            key = attention.k_proj(normed).view(1, self._kv_heads, -1)
            value = attention.v_proj(normed).view(1, self._kv_heads, -1)
            self.keys[number] = torch.cat([self.keys[number], key])
            self.values[number] = torch.cat([self.values[number], value])
            keys, values = self.rotated(self.keys[number]), self.values[number]
            # Only the last row of what is rotated is the query's.
            query = attention.q_proj(normed).view(1, self._heads, -1).expand(len(keys), -1, -1)
            query = self.rotated(query)[-1]
            shared = self._heads // self._kv_heads
            parts = []
            for head in range(self._heads):
                scores = keys[:, head // shared] @ query[head] / self._head_dim**0.5
                parts.append(scores.softmax(0) @ values[:, head // shared])
            hidden = hidden + attention.o_proj(torch.cat(parts))
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return self._model.lm_head(inner.norm(hidden))


class HandCutConversation:
    """Turns of a conversation with greedy answers, in a window that is cut by hand."""

    def __init__(self, model: LlamaForCausalLM, *, window: int, sinks: int = 0) -> None:
        self.llama = HandCutLlama(model)
        self._window = window
        self._sinks = sinks
        self._pending: list[int] = []
        self.cut_count = 0

    def copied(self) -> Self:
        """One that goes on by itself."""
        copied = copy.copy(self)
        copied.llama = self.llama.copied()
        copied._pending = list(self._pending)
        return copied

    def turn(
        self, prompt: list[int], new_tokens: int, *, said: Sequence[int] = ()
    ) -> tuple[list[int], list[Tensor]]:
        """The answer, and the logits of each of its tokens; it begins with what was ``said``."""
        answer: list[int] = []
        logits: list[Tensor] = []
        self._pending += prompt
        self._make_room(len(self._pending))
        while len(answer) < new_tokens:
            for token_id in self._pending:
                self._make_room(1)
                last = self.llama.feed(token_id)
            logits.append(last)
            is_said = len(answer) < len(said)
            answer.append(said[len(answer)] if is_said else int(last.argmax()))
            self._pending = answer[-1:]
        return answer, logits

    def keep(self, positions: list[int]) -> None:
        """A cut between two turns."""
        self.llama.keep(positions)
        self.cut_count += 1

    def _make_room(self, new_count: int) -> None:
        while self.llama.count + new_count > self._window:
            count = self.llama.count
            sinks = min(self._sinks, count)
            kept = (count - sinks) // 2
            self.keep([*range(sinks), *range(count - kept, count)])
