"""The tensors of a model by name, taken out one by one with their shapes checked. Pure."""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine_adapters.runner.model.errors import ModelError
from engine_adapters.runner.model.projection import Projection


class TensorPool:
    """What was read from the files of a model. Every method raises ModelError."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._tensors = tensors

    def take(self, name: str, *shape: int) -> Tensor:
        """Takes the tensor ``name``, which must have ``shape``."""
        tensor = self._tensors.pop(name, None)
        if tensor is None:
            raise ModelError(f"the model has no tensor {name}")
        if tuple(tensor.shape) != shape:
            raise ModelError(f"tensor {name} has shape {tuple(tensor.shape)}, expected {shape}")
        return tensor

    def take_projection(
        self, parts: Sequence[tuple[str, int]], inputs: int, *, has_bias: bool
    ) -> Projection:
        """One projection whose outputs are those of ``parts`` (name, rows) in order."""
        weights = [self.take(f"{name}.weight", rows, inputs) for name, rows in parts]
        biases = [self.take(f"{name}.bias", rows) for name, rows in parts] if has_bias else []
        return Projection(
            weight=weights[0] if len(weights) == 1 else torch.cat(weights),
            bias=torch.cat(biases) if biases else None,
        )

    def take_output(self, embedding: Tensor, *, is_tied: bool) -> Tensor:
        """The output matrix: of the embedding's shape, or the embedding itself if tied."""
        if not is_tied:
            return self.take("lm_head.weight", *embedding.shape)
        self._tensors.pop("lm_head.weight", None)
        return embedding

    def finish(self) -> None:
        """Refuses what is left: a model with unknown tensors would compute something else."""
        # Older checkpoints carry the frequencies, which follow from the config.
        unknown = [name for name in self._tensors if not name.endswith("rotary_emb.inv_freq")]
        if unknown:
            raise ModelError(
                f"the model holds {len(unknown)} unknown tensors, first {min(unknown)}"
            )
