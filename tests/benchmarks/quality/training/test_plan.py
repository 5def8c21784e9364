"""How the rates of a training go up and down."""

import pytest

from benchmarks.quality.training.plan import Plan


def test_rates_rise_stay_and_fall() -> None:
    plan = Plan(step_count=1000, warmup_steps=10, decay_share=0.25)
    shares = [plan.rate_share(step) for step in range(1000)]
    assert shares[0] == pytest.approx(0.1)
    assert shares[9:751] == [1.0] * 742
    assert shares[875] == pytest.approx(0.5)
    assert shares[999] == pytest.approx(1 / 250)
    assert plan.rate_share(1000) == 0
