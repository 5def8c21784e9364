"""What every format must do with damaged bytes."""

from collections.abc import Callable

import pytest

from kvstored.format.errors import FormatError


def check_every_bit_is_vouched_for(data: bytes, decode: Callable[[bytes], object]) -> None:
    """Asserts that ``decode`` accepts ``data`` and refuses it with any one bit flipped."""
    decode(data)
    for offset in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[offset] ^= 1 << bit
            try:
                decode(bytes(damaged))
            except FormatError:
                continue
            pytest.fail(f"bit {bit} of byte {offset} is not checked")


def check_every_truncation_is_refused(data: bytes, decode: Callable[[bytes], object]) -> None:
    """Asserts that ``decode`` refuses every proper prefix of ``data``."""
    for byte_count in range(len(data)):
        with pytest.raises(FormatError):
            decode(data[:byte_count])
