import numpy as np
import torch

from engine_adapters.codecs.grouping import GroupAxis, Grouping
from engine_adapters.codecs.symmetric import CODE_MAX, dequantise, quantise
from engine_adapters.codecs.values import SCALE_MIN


def test_the_greatest_magnitude_has_the_last_code() -> None:
    matrix = torch.tensor([[1.0, -254.0, 3.0, 0.0], [0.5, 0.25, 0.0, 127.0]])
    grouping = Grouping.of(2, 4, GroupAxis.CHANNELS)
    bits, codes = quantise(matrix, grouping)
    assert codes.reshape(2, 4).tolist() == [[0, -CODE_MAX, 2, 0], [0, 0, 0, CODE_MAX]]
    assert (bits.astype(np.uint32) << 16).view(np.float32).tolist() == [2.0, 1.0]
    out = torch.empty(2, 4)
    dequantise(out, grouping, bits, codes)
    assert out.tolist() == [[0.0, -254.0, 4.0, 0.0], [0.0, 0.0, 0.0, 127.0]]


def test_a_group_of_zeros_has_a_scale() -> None:
    """Else its codes were 0 / 0."""
    bits, codes = quantise(torch.zeros(1, 4), Grouping.of(1, 4, GroupAxis.CHANNELS))
    assert (bits.astype(np.uint32) << 16).view(np.float32).tolist() == [SCALE_MIN]
    assert codes.tolist() == [0] * 4
