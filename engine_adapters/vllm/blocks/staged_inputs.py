"""Memory of a device in which a forward leaves the inputs of its layers."""

import torch
from torch import Tensor


class StagedInputs:
    """The inputs of every decoder layer in the forward that ran last, and nothing older.

    A forward writes them by kernels alone, to places that stay the same. So a CUDA graph may
    capture it: replaying one runs no Python. A reader has the next forward wait.
    """

    def __init__(
        self,
        layer_count: int,
        row_count_max: int,
        width: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """Raises RuntimeError where the device has no room."""
        self._rows = torch.empty((layer_count, row_count_max, width), dtype=dtype, device=device)
        self.is_broken = False
        """Whether a forward had inputs of another shape: nothing of it can be told apart."""

    @property
    def row_count_max(self) -> int:
        """Rows of the longest forward."""
        return self._rows.shape[1]

    @property
    def byte_count(self) -> int:
        """Of the memory."""
        return self._rows.nbytes

    @property
    def device(self) -> torch.device:
        """Where the rows lie."""
        return self._rows.device

    def write(self, layer: int, hidden: Tensor, residual: Tensor | None) -> None:
        """``hidden`` and ``residual`` [row_count, width], of which the sum is the layer's input.

        It raises nothing: an engine without its states goes on, one whose forward raises does not.
        """
        rows = self._rows[layer, : len(hidden)]
        if rows.shape != hidden.shape:
            self.is_broken = True
        elif residual is None:
            rows.copy_(hidden)
        else:
            torch.add(hidden, residual, out=rows)

    def rows(self, layer: int, count: int) -> Tensor:
        """The first of a layer [count, width]; aliases the memory."""
        return self._rows[layer, :count]
