import math

import pytest

from engine_adapters.restore import LayerCosts


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("name", ["io_hidden_s", "io_kv_s", "compute_s", "project_s"])
def test_a_cost_is_a_finite_time_above_0(name: str, wrong: float) -> None:
    costs = {"io_hidden_s": 1.0, "io_kv_s": 2.0, "compute_s": 6.0, "project_s": 1.0}
    assert LayerCosts(**costs).compute_s == 6.0
    with pytest.raises(ValueError, match=f"{name} is .*; a cost is a finite time above 0 s"):
        LayerCosts(**costs | {name: wrong})


def test_loading_may_cost_nothing_but_not_less() -> None:
    costs = {"io_hidden_s": 1.0, "io_kv_s": 2.0, "compute_s": 6.0, "project_s": 1.0}
    assert LayerCosts(**costs).load_s == LayerCosts(**costs, load_s=0.0).load_s == 0.0
    for wrong in (-1.0, math.inf, math.nan):
        with pytest.raises(
            ValueError, match=r"load_s is .*; a cost is a finite time of at least 0"
        ):
            LayerCosts(**costs, load_s=wrong)
