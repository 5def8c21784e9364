"""Tokens as anchors and differences to them."""

from dataclasses import dataclass

import torch
from torch import Tensor

ANCHOR_TOKENS = 16
"""A group of tokens: its first is the anchor of the others. The last group may be shorter."""


@dataclass(frozen=True, slots=True)
class AnchorGroups:
    """The groups of ``token_count`` tokens; all tensors are [halves, tokens, channels]."""

    token_count: int

    @property
    def anchor_count(self) -> int:
        """Groups, and so anchors."""
        return -(-self.token_count // ANCHOR_TOKENS)

    @property
    def difference_count(self) -> int:
        """Tokens that are no anchors."""
        return self.token_count - self.anchor_count

    def anchors(self, values: Tensor) -> Tensor:
        """The anchors, aliased."""
        return values[:, ::ANCHOR_TOKENS]

    def differences(self, values: Tensor, anchors: Tensor) -> Tensor:
        """What the tokens that are no anchors differ by from theirs, in token order."""
        pairs = zip(self._others(values), self._of_others(anchors), strict=True)
        return torch.cat([(others - anchor).flatten(1, 2) for others, anchor in pairs], dim=1)

    def dequantise(self, codes: Tensor, steps: Tensor, anchors: Tensor, out: Tensor) -> None:
        """Writes anchors, and anchor + code * step for the others, into ``out``.

        ``codes`` are int8, ``steps`` [halves, channels]; ``out`` is float32.
        """
        self.anchors(out).copy_(anchors)
        groups = zip(self._others(out), self._of_others(anchors), strict=True)
        first = 0
        for others, anchor in groups:
            stop = first + others.shape[1] * others.shape[2]
            # Widened in place: a second workspace would be more than a core's cache holds.
            others.copy_(codes[:, first:stop].view(others.shape))
            torch.addcmul(anchor, others, steps[:, None, None], out=others)
            first = stop

    def _others(self, values: Tensor) -> list[Tensor]:
        """The others as [halves, groups, tokens, channels]: complete groups, then the rest."""
        complete = self.token_count // ANCHOR_TOKENS
        stop = complete * ANCHOR_TOKENS
        groups = values[:, :stop].view(len(values), complete, ANCHOR_TOKENS, values.shape[2])
        return [groups[:, :, 1:], values[:, None, stop + 1 :]]

    def _of_others(self, anchors: Tensor) -> list[Tensor]:
        """The anchors of ``_others``, which broadcast over the tokens."""
        complete = self.token_count // ANCHOR_TOKENS
        return [anchors[:, :complete, None], anchors[:, None, complete:]]
