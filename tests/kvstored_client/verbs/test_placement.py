"""Addresses that are none are refused where a placement is made."""

from typing import Any
from unittest.mock import Mock

import pytest

from kvstored_client.verbs.placement import Placement

REGIONS: Any = (
    Mock(offset=4096, byte_count=4096),
    Mock(offset=65536, byte_count=8192),
)


@pytest.mark.parametrize(
    "change",
    [{"base": -1}, {"layer_stride": -1}, {"chunk_stride": -4096}, {"block_offsets": (0, -1)}],
)
def test_a_negative_address_was_told_by_protobuf(change: dict[str, Any]) -> None:
    """Bug: the sentence was that of a number out of range, without a name."""
    plain: dict[str, Any] = {"regions": (), "base": 0, "layer_stride": 0}
    with pytest.raises(ValueError, match="none of them may be negative"):
        Placement(**(plain | change))


@pytest.mark.parametrize(
    ("base", "offsets", "address"),
    [
        (0, (), 0),
        (8192, (), 8192),
        (65536, (0, 8192), 73728),
        (0, (4096, 100_000), 100_000),
    ],
)
def test_a_slice_outside_of_every_region_was_told_by_the_daemon_or_not_at_all(
    base: int, offsets: tuple[int, ...], address: int
) -> None:
    """Bug: with a base of the wrong region a read wrote to what another one holds."""
    with pytest.raises(ValueError, match=f"byte {address} of the arena lies in no region"):
        Placement(regions=REGIONS, base=base, layer_stride=4096, block_offsets=offsets)


def test_addresses_in_any_region_are_taken() -> None:
    Placement(regions=REGIONS, base=65536, layer_stride=1 << 40)
    Placement(regions=REGIONS, base=4096, layer_stride=1, block_offsets=(0, 61440))
    Placement(regions=(), base=1 << 40, layer_stride=0)
