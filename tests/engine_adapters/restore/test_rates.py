import pytest

from engine_adapters.restore import LoadCost, Rates


def test_only_the_time_between_chunks_is_eased() -> None:
    """It alone is measured by what a plan that loads nothing does not do."""
    rates = Rates(LoadCost(chunk_s=1.0, project_s=1.0), token_budget=16)
    for mean in (rates.chunk_s, rates.project_s, rates.slowness):
        mean.add(512 * 9.0, units=512)
    rates.ease()
    assert rates.chunk_s.value == pytest.approx(1 + 8 * 7 / 8)
    assert rates.project_s.value == rates.slowness.value == 9.0
