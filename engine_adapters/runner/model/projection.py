"""A linear map of a layer."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import linear


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """A linear map: weight [outputs, inputs] and bias [outputs] or None."""

    weight: Tensor
    bias: Tensor | None

    def apply(self, inputs: Tensor) -> Tensor:
        """Outputs [rows, outputs] of ``inputs`` [rows, inputs]."""
        return linear(inputs, self.weight, self.bias)

    def apply_into(self, inputs: Tensor, out: Tensor) -> None:
        """As ``apply``, written into ``out``, whose rows may lie apart."""
        if self.bias is None:
            torch.mm(inputs, self.weight.t(), out=out)
        else:
            torch.addmm(self.bias, inputs, self.weight.t(), out=out)

    def outputs(self, first: int, stop: int) -> "Projection":
        """The map to outputs ``first`` to ``stop`` - 1 alone; it shares the weights."""
        return Projection(
            weight=self.weight[first:stop],
            bias=None if self.bias is None else self.bias[first:stop],
        )
