"""Normalisation of hidden states before a block."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn.functional import layer_norm, rms_norm


class Norm(Protocol):
    """What stands before attention, MLP and output."""

    def apply(self, hidden: Tensor) -> Tensor:
        """Normalised ``hidden`` [rows, hidden_size], of the same shape and dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RmsNorm:
    """Divides by the root of the mean square; ``weight`` is [hidden_size]."""

    weight: Tensor
    epsilon: float

    def apply(self, hidden: Tensor) -> Tensor:
        """See Norm; the quotient is taken in float32 and rounded before it is weighted."""
        quotient = rms_norm(hidden, self.weight.shape, None, self.epsilon)
        return quotient.mul_(self.weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNorm:
    """Subtracts the mean and divides by the deviation; both tensors are [hidden_size]."""

    weight: Tensor
    bias: Tensor
    epsilon: float

    def apply(self, hidden: Tensor) -> Tensor:
        """See Norm."""
        return layer_norm(hidden, self.weight.shape, self.weight, self.bias, self.epsilon)
