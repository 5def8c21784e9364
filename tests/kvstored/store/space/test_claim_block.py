import numpy as np
import pytest

from kvstored.format.errors import FormatError
from kvstored.store.space.claim_block import ClaimBlock


def block(count: int, *, seed: int = 1) -> ClaimBlock:
    """Random claims."""
    generator = np.random.default_rng(seed)
    return ClaimBlock(
        identities=generator.integers(0, 256, (count, 48), np.uint8),
        devices=generator.integers(0, 1 << 16, count, np.uint16),
        offsets=generator.integers(0, 1 << 63, count, np.uint64),
        byte_counts=generator.integers(0, 1 << 63, count, np.uint64),
        stamps=generator.integers(0, 1 << 63, count, np.uint64),
    )


def columns(claims: ClaimBlock) -> list[list[int]]:
    return [
        claims.identities.tolist(),
        claims.devices.tolist(),
        claims.offsets.tolist(),
        claims.byte_counts.tolist(),
        claims.stamps.tolist(),
    ]


@pytest.mark.parametrize("count", [0, 1, 57])
def test_bytes_and_back(count: int) -> None:
    claims = block(count)
    again = ClaimBlock.decode(claims.encode())
    assert len(again) == count
    assert columns(again) == columns(claims)


def test_empty() -> None:
    assert len(ClaimBlock.empty()) == 0
    assert ClaimBlock.empty().identities.shape == (0, 48)


def test_selection_keeps_the_order() -> None:
    claims = block(5)
    chosen = claims.select(np.array([True, False, False, True, True]))
    assert columns(chosen) == [[column[i] for i in (0, 3, 4)] for column in columns(claims)]


@pytest.mark.parametrize("data", [b"", b"\1" * 7, block(3).encode()[:-1], block(3).encode() + b"x"])
def test_bytes_of_the_wrong_length_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="claim block of"):
        ClaimBlock.decode(data)
