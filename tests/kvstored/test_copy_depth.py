"""How many threads copy from the DRAM tier."""

import pytest

from kvstored.daemon import copy_depth


@pytest.mark.parametrize(("core_count", "threads"), [(1, 2), (2, 2), (6, 3), (16, 8), (96, 8)])
def test_half_of_the_cores_copy_within_bounds(core_count: int, threads: int) -> None:
    assert copy_depth(core_count) == threads
