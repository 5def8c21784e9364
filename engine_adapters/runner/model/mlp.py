"""The part of a layer that sees each token alone."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.nn.functional import relu, silu

from engine_adapters.runner.model.projection import Projection


class Mlp(Protocol):
    """What follows the attention of a layer."""

    def apply(self, normed: Tensor) -> Tensor:
        """What is added to the hidden states: [rows, hidden_size], as ``normed``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedMlp:
    """Llama's: ``gate_up`` holds both projections into the inner size."""

    gate_up: Projection
    down: Projection

    def apply(self, normed: Tensor) -> Tensor:
        """See Mlp."""
        gate, up = self.gate_up.apply(normed).chunk(2, dim=-1)
        return self.down.apply(silu(gate) * up)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReluMlp:
    """OPT's."""

    up: Projection
    down: Projection

    def apply(self, normed: Tensor) -> Tensor:
        """See Mlp."""
        return self.down.apply(relu(self.up.apply(normed)))
