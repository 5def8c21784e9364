import random

import pytest

from engine_adapters.restore.testing.changing_speed import ChangingSpeed


def test_work_takes_as_long_as_it_is_slow() -> None:
    assert ChangingSpeed.steady().duration_s(3.0, 7.0) == 3.0
    halved = ChangingSpeed.changed(10.0, 0.5)
    assert halved.duration_s(3.0, 2.0) == 3.0
    assert halved.duration_s(3.0, 7.0) == 3.0
    assert halved.duration_s(3.0, 9.0) == 1 + 4
    assert halved.duration_s(3.0, 10.0) == 6.0
    assert ChangingSpeed((0.0, 1.0, 2.0), (1.0, 0.5, 1.0)).duration_s(2.0, 0.5) == 2.5


def test_bursts_take_half_of_the_time() -> None:
    speed = ChangingSpeed.bursts(
        random.Random(1), shortest_s=0.1, longest_s=1.0, speed=0.25, until_s=1000.0
    )
    assert set(speed.speeds) == {0.25, 1.0}
    assert all(
        before != after for before, after in zip(speed.speeds, speed.speeds[1:], strict=False)
    )
    assert speed.edges_s[-1] <= 1000 < speed.edges_s[-1] + 1
    usual_s = 1000 * (1 + 0.25) / 2
    assert speed.duration_s(usual_s, 0.0) == pytest.approx(1000, rel=0.1)
