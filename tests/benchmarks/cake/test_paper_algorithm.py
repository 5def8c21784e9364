import pytest

from benchmarks.cake.paper_algorithm import paper_algorithm_s
from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.ranges import History

HISTORY = History(prompt_tokens=41, chunk_tokens=10, is_stored=(True,) * 4)
COMPUTE = ComputeCost(step_s=0.0, token_s=1.0, attention_s=0.0)


@pytest.mark.parametrize(
    ("chunk_s", "duration_s"),
    [
        (1000.0, 41),
        # Two steps of 10 s; then the third chunk is there, and one token is computed.
        (10.0, 21),
        # The first step is begun although everything is there after 0.4 s.
        (0.1, 11),
    ],
)
def test_it_looks_after_each_step_only(chunk_s: float, duration_s: float) -> None:
    load = LoadCost(chunk_s=chunk_s)
    assert paper_algorithm_s(HISTORY, COMPUTE, load, token_budget=10) == pytest.approx(duration_s)


def test_a_step_is_computed_whole_when_some_of_it_is_missing() -> None:
    load = LoadCost(chunk_s=15.0)
    assert paper_algorithm_s(HISTORY, COMPUTE, load, token_budget=20) == pytest.approx(41)
