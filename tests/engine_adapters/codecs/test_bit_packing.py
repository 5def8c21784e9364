import numpy as np
import pytest
from hypothesis import strategies as st

from engine_adapters.codecs.bit_packing import (
    pack3,
    pack4,
    packed3_bytes,
    packed4_bytes,
    unpack3,
    unpack4,
)
from tests.engine_adapters.codecs.states import randomised


@randomised(200, codes=st.lists(st.integers(0, 7), max_size=300))
def test_three_bits(codes: list[int]) -> None:
    values = np.array(codes, np.uint8)
    packed = pack3(values)
    assert packed.size == packed3_bytes(values.size)
    assert unpack3(packed, values.size).tolist() == codes


@randomised(200, codes=st.lists(st.integers(0, 15), max_size=300))
def test_four_bits(codes: list[int]) -> None:
    values = np.array(codes, np.uint8)
    packed = pack4(values, padding=5)
    assert packed.size == packed4_bytes(values.size)
    assert unpack4(packed, values.size).tolist() == codes
    if packed.size:
        assert (unpack4(packed, 2 * packed.size)[values.size :] == 5).all()


@pytest.mark.parametrize("count", [64, 640, 65_536])
def test_no_bit_is_wasted(count: int) -> None:
    assert packed3_bytes(count) == count * 3 // 8
    assert packed4_bytes(count) == count // 2


def test_any_bytes_unpack_to_codes() -> None:
    octets = np.arange(256, dtype=np.uint8)
    assert unpack3(np.tile(octets, 3), 2048).max() == 7
    assert sorted(set(unpack4(octets, 512).tolist())) == list(range(16))
