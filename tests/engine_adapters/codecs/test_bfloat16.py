import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from engine_adapters.codecs.bfloat16 import bits_above, bits_below, from_bits
from engine_adapters.codecs.errors import PayloadError
from tests.engine_adapters.codecs.states import randomised

VALUES = st.floats(-(2.0**100), 2.0**100, width=32)
LIMIT = 2.0**120


@randomised(300, value=VALUES)
def test_rounds_to_the_next_in_its_direction(value: float) -> None:
    exact = torch.tensor([value])
    above = from_bits(bits_above(exact), LIMIT)
    below = from_bits(bits_below(exact), LIMIT)
    assert below <= exact <= above
    nearest = exact.to(torch.bfloat16).to(torch.float32)
    assert nearest in (below, above)
    if nearest == exact:
        assert below == above
    # Neighbours: nothing of bfloat16 lies between them.
    assert ((below + above) / 2).to(torch.bfloat16).to(torch.float32) in (below, above)


def test_keeps_the_order_of_a_strided_matrix() -> None:
    matrix = torch.tensor([[1.0, -2.0], [3.0, 4.0]]).t()
    assert from_bits(bits_above(matrix), LIMIT).tolist() == [1.0, 3.0, -2.0, 4.0]


def test_values_beyond_the_limit_are_refused() -> None:
    for value in (4.0, -4.0):
        bits = bits_above(torch.tensor([1.0, value]))
        assert from_bits(bits, 4.0).tolist() == [1.0, value]
        with pytest.raises(PayloadError):
            from_bits(bits, 3.0)
    for special in (0x7F80, 0xFF80, 0x7FC0, 0xFFFF):
        with pytest.raises(PayloadError):
            from_bits(np.array([special], np.uint16), LIMIT)
