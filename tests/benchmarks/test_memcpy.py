import numpy as np

from benchmarks.memcpy import copy_gb_per_s, populated


def test_the_copy_is_complete_and_has_a_rate() -> None:
    source, destination = populated(1024 * 1024), populated(1024 * 1024)
    source[:] = np.arange(source.size, dtype=np.uint8)
    assert copy_gb_per_s(source, destination) > 0
    np.testing.assert_array_equal(source, destination)
