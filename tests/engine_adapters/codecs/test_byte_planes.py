import numpy as np
import pytest
from numpy.typing import NDArray

from engine_adapters.codecs.byte_planes import join_planes, split_planes

WORDS = np.arange(0, 2**32, 65_537, dtype=np.uint32)


def test_planes_have_bytes_of_equal_significance() -> None:
    words = np.array([0x11223344, 0xAABBCCDD], np.uint32)
    planes = [plane.tolist() for plane in split_planes(words)]
    assert planes == [[0x11, 0xAA], [0x22, 0xBB], [0x33, 0xCC], [0x44, 0xDD]]
    assert [plane.tolist() for plane in split_planes(words.astype(np.uint16))] == [
        [0x33, 0xCC],
        [0x44, 0xDD],
    ]


@pytest.mark.parametrize("words", [WORDS.astype(np.uint16), WORDS], ids=["uint16", "uint32"])
def test_planes_join(words: NDArray[np.uint16] | NDArray[np.uint32]) -> None:
    out = np.empty_like(words)
    join_planes(split_planes(words), out)
    assert (out == words).all()
