"""How the rates of a training go up and down."""

from dataclasses import replace

import pytest

from benchmarks.quality.training.plan import CURRICULUM
from benchmarks.training.plan import Plan


def test_rates_rise_stay_and_fall() -> None:
    stage = replace(CURRICULUM[0], step_count=500)
    plan = Plan(seed=1, stages=(stage, stage), warmup_steps=10, decay_share=0.25)
    shares = [plan.rate_share(step) for step in range(1000)]
    assert shares[0] == pytest.approx(0.1)
    assert shares[9:751] == [1.0] * 742
    assert shares[875] == pytest.approx(0.5)
    assert shares[999] == pytest.approx(1 / 250)
    assert plan.rate_share(1000) == 0


def test_stages_follow_one_another() -> None:
    counts = (2, 3, 9)
    first, second, third = (
        replace(stage, step_count=count)
        for stage, count in zip(CURRICULUM[:3], counts, strict=True)
    )
    plan = Plan(seed=1, stages=(first, second, third))
    assert plan.step_count == 14
    shapes = [plan.batch(step) for step in range(15)]
    assert shapes == [first.batch] * 2 + [second.batch] * 3 + [third.batch] * 10
    size = first.batch.sequence_count * first.batch.position_count
    assert plan.tokens(1) == size
    assert plan.tokens(3) == 2 * size + second.batch.sequence_count * second.batch.position_count
