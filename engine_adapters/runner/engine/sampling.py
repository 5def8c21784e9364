"""Choosing the next token from logits."""

from dataclasses import dataclass

import torch
from torch import Tensor

TEMPERATURE_MIN = 1e-5
"""Of draws: divided by less, logits of float32 are not finite any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are chosen. A ``temperature`` below TEMPERATURE_MIN is greedy, without the rest.

    ``top_p`` keeps the most likely tokens up to that share of probability. Raises
    ValueError for a value out of range.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be 0 or more, not {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must be above 0 and at most 1, not {self.top_p}")


class Sampler:
    """Draws the tokens of one request; its generator depends on nothing but the seed."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        # On the CPU whatever the model's device, so that a seed means the same everywhere.
        self._generator = torch.Generator().manual_seed(sampling.seed)

    def choose(self, logits: Tensor) -> int:
        """The next token id; ``logits`` has shape [vocab_size]."""
        if self._sampling.temperature < TEMPERATURE_MIN:
            return int(logits.argmax())
        scaled = logits.detach().float().cpu() / self._sampling.temperature
        probabilities, token_ids = scaled.softmax(-1).sort(descending=True, stable=True)
        before = probabilities.cumsum(-1) - probabilities
        kept = probabilities.masked_fill(before >= self._sampling.top_p, 0.0)
        drawn = torch.multinomial(kept, 1, generator=self._generator)
        return int(token_ids[drawn])
