from dataclasses import replace

import pytest

from benchmarks.restore.claim import over
from engine_adapters.restore import Mode


@pytest.mark.parametrize(
    ("speedup", "difference"),
    [(1.0, -0.5), (2.0, 0.0), (2.5, 0.0), (4.0, 0.0), (5.0, 0.25)],
)
def test_the_difference_is_from_the_nearer_end(speedup: float, difference: float) -> None:
    claim = over(Mode.KV, 2.0, 4.0, section="6")
    assert claim.difference(speedup) == pytest.approx(difference)
    assert str(claim) == "2 - 4"


def test_only_ranges_that_gave_no_factor_are_counted() -> None:
    claim = over(Mode.KV, 2.0, 4.0, section="6")
    assert claim.is_counted
    assert not replace(claim, is_calibrated=True).is_counted
    single = over(Mode.KV, 2.0, section="6", of=Mode.HIDDEN)
    assert not single.is_counted
    assert (str(single), single.difference(1.0), single.difference(3.0)) == ("2", -0.5, 0.5)
