"""Codes of 3 and of 4 bits, packed without gaps.

Bits are taken from whole 64-bit words and every field of a byte belongs to another
stretch of the codes: unpacking is a few shifts over long arrays.
"""

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

_WORD_BYTES = 8
_LOW_TWO = np.uint64(0x0303_0303_0303_0303)
_BIT_TWO = np.uint64(0x0404_0404_0404_0404)
_LOW_FOUR = np.uint64(0x0F0F_0F0F_0F0F_0F0F)
_QUARTERS = np.array([[0], [2], [4], [6]], np.uint64)
_RIGHT = np.array([[0], [1], [2], [3], [4], [5]], np.uint64)
_LEFT = np.array([[2], [1]], np.uint64)
# Bits 2 to 7 hold the first six stretches, so that most unpack by a right shift.
_HIGH_BITS = np.array([[2], [3], [4], [5], [6], [7], [0], [1]], np.uint8)


def packed3_bytes(count: int) -> int:
    """Bytes of ``count`` codes of 3 bits."""
    return 3 * _stretch(count, 8)


def pack3(codes: Bytes) -> Bytes:
    """Packs codes 0 to 7 [count]: two planes of low bits, four codes a byte, one of high bits."""
    stretch = _stretch(codes.size, 8)
    stretches = _padded(codes, 8 * stretch).reshape(2, 4, stretch)
    packed = np.empty((3, stretch), np.uint8)
    low = (stretches & 3) << _QUARTERS.astype(np.uint8)
    np.bitwise_or.reduce(low, axis=1, out=packed[:2])
    high = (stretches.reshape(8, stretch) >> 2) << _HIGH_BITS
    np.bitwise_or.reduce(high, axis=0, out=packed[2])
    return packed.reshape(-1)


def unpack3(packed: Bytes, count: int) -> Bytes:
    """The inverse of ``pack3``."""
    stretch = _stretch(count, 8)
    words = packed.reshape(3, stretch).view("<u8")
    codes = np.right_shift(words[:2, None], _QUARTERS).reshape(8, -1)
    codes &= _LOW_TWO
    high = np.empty_like(codes)
    np.right_shift(words[2], _RIGHT, out=high[:6])
    np.left_shift(words[2], _LEFT, out=high[6:])
    high &= _BIT_TWO
    codes |= high
    return _octets(codes)[:count]


def packed4_bytes(count: int) -> int:
    """Bytes of ``count`` codes of 4 bits."""
    return _stretch(count, 2)


def pack4(codes: Bytes, padding: int) -> Bytes:
    """Packs codes 0 to 15 [count], two a byte; ``padding`` is the code that fills the end."""
    stretches = _padded(codes, 2 * _stretch(codes.size, 2), padding).reshape(2, -1)
    packed: Bytes = stretches[0] | (stretches[1] << 4)
    return packed


def unpack4(packed: Bytes, count: int) -> Bytes:
    """The inverse of ``pack4``."""
    words = packed.view("<u8")
    codes = np.empty((2, words.size), np.uint64)
    np.bitwise_and(words, _LOW_FOUR, out=codes[0])
    np.right_shift(words, np.uint64(4), out=codes[1])
    codes[1] &= _LOW_FOUR
    return _octets(codes)[:count]


def _stretch(count: int, stretches: int) -> int:
    """Codes of one of so many equal stretches, in whole words."""
    return -(-count // (stretches * _WORD_BYTES)) * _WORD_BYTES


def _padded(codes: Bytes, count: int, padding: int = 0) -> Bytes:
    return np.pad(codes, (0, count - codes.size), constant_values=padding)


def _octets(words: NDArray[np.uint64]) -> Bytes:
    return words.astype("<u8", copy=False).view(np.uint8).reshape(-1)
