"""Symmetric 8-bit quantisation of a matrix, with a scale for each group of channels."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine_adapters.codecs.bfloat16 import Bits, bits_above, from_bits
from engine_adapters.codecs.grouping import Grouping
from engine_adapters.codecs.values import SCALE_MAX, SCALE_MIN

CODE_MAX = 127


def quantise(matrix: Tensor, grouping: Grouping) -> tuple[Bits, NDArray[np.int8]]:
    """Scales and codes of float32 [rows, channels]; |value - code * scale| <= scale / 2."""
    lowest, highest = grouping.extremes(matrix)
    magnitudes = torch.maximum(-lowest, highest)
    # Rounded up, so that no code needs to be cut off at CODE_MAX.
    bits = bits_above((magnitudes / CODE_MAX).clamp_(min=SCALE_MIN))
    scales = from_bits(bits, SCALE_MAX).view(grouping.scale_shape)
    codes = (grouping.split(matrix) / scales).round_()
    return bits, grouping.join(codes).to(torch.int8).contiguous().numpy().reshape(-1)


def dequantise(
    matrix: Tensor, grouping: Grouping, scale_bits: Bits, codes: NDArray[np.int8]
) -> None:
    """Writes code * scale into float32 ``matrix`` [rows, channels]; raises PayloadError."""
    scales = from_bits(scale_bits, SCALE_MAX)
    np.copyto(matrix.numpy().reshape(-1), codes)
    grouping.dequantise(matrix, scales)
