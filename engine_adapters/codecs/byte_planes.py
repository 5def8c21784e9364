"""Words as planes of bytes of equal significance: exponents together, mantissas together."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Word = np.uint16 | np.uint32


def split_planes(words: NDArray[np.uint16] | NDArray[np.uint32]) -> list[NDArray[np.uint8]]:
    """One plane of [words] bytes for each byte of a word, the most significant first."""
    shifts = range(8 * (words.itemsize - 1), -1, -8)
    return [(words >> shift).astype(np.uint8) for shift in shifts]


def join_planes(
    planes: Sequence[NDArray[np.uint8]], out: NDArray[np.uint16] | NDArray[np.uint32]
) -> None:
    """The inverse of ``split_planes`` into ``out`` [words]."""
    # In whole words rather than byte by byte: strided stores of single bytes are slow.
    np.copyto(out, planes[0])
    for plane in planes[1:]:
        np.left_shift(out, 8, out=out)
        np.bitwise_or(out, plane, out=out)
