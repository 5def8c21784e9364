"""Tensors as bytes."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def byte_view(states: Tensor) -> NDArray[np.uint8]:
    """The bytes of a contiguous tensor on the CPU, aliased."""
    view: NDArray[np.uint8] = states.detach().reshape(-1).view(torch.uint8).numpy()
    return view
