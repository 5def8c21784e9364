"""Who comes first in the steps that a long request and short ones share."""

from pathlib import Path
from typing import cast

import pytest

from benchmarks.cake.burst import ShortRequest
from benchmarks.cake.measured.crowd import TOKEN_BUDGET, Crowd, CrowdResult
from benchmarks.cake.measured.history import NEW_TOKENS, CakeHistory
from benchmarks.cake.measured.shared_model import SharedModel
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from engine_adapters.runner.restore.restorer import Restorer
from kvstored_client import RAW
from tests.engine_adapters.runner.scripted_restorations import (
    ScriptedRestoration,
    ScriptedRestorer,
)

LONG_TOKENS = 3 * TOKEN_BUDGET
SHORT_TOKENS = 400


class ScriptedCake(ScriptedRestorer):
    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> CakeHistory:
    folder: Path = tmp_path_factory.mktemp("model")
    shape = RandomModelShape(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=32,
        layer_count=1,
        head_count=2,
        kv_head_count=2,
        position_count=2048,
    )
    write_random_model(folder, shape, ["a few words"])
    model = SharedModel.from_directory(folder)
    assert isinstance(model, SharedModel)
    return CakeHistory(model, [7] * (LONG_TOKENS - 1), chunk_tokens=128, codec=RAW)


@pytest.fixture
def crowd(stored: CakeHistory) -> Crowd:
    """All have come when the long request comes."""
    burst = [ShortRequest(arrives_s=0.0, token_count=SHORT_TOKENS)] * 2
    return Crowd(stored, burst, [[number] * SHORT_TOKENS for number in (1, 2)])


def run(crowd: Crowd, *, is_adaptive: bool) -> CrowdResult:
    """The long request could be computed or loaded all the time."""
    restoration = ScriptedRestoration(step_tokens=TOKEN_BUDGET, is_loading=True)
    restorer = cast("Restorer", ScriptedCake(restoration))
    return crowd.run(restorer, is_adaptive=is_adaptive)


def test_first_come_first_served_computes_the_long_request_to_its_first_token(
    crowd: Crowd,
) -> None:
    steps = run(crowd, is_adaptive=False).steps
    assert [step.stop_position for step in steps[:3]] == [512, 1024, 1536]
    assert sum(step.token_count for step in steps[:3]) == LONG_TOKENS


def test_adaptive_scheduling_gives_it_what_the_short_ones_leave(crowd: Crowd) -> None:
    steps = run(crowd, is_adaptive=True).steps
    left = 2 * TOKEN_BUDGET - 2 * SHORT_TOKENS - 1
    # The second step has a token of the request that has its first one already.
    assert [step.stop_position for step in steps[:2]] == [SHORT_TOKENS, SHORT_TOKENS + 1]
    assert steps[2].stop_position == left + TOKEN_BUDGET - 2
    assert {step.token_count for step in steps[:3]} == {TOKEN_BUDGET}


def test_both_ways_compute_the_same_tokens(crowd: Crowd) -> None:
    first, second = (run(crowd, is_adaptive=each) for each in (True, False))
    assert first.generated_ids == second.generated_ids
    assert len(first.generated_ids) == 3
    assert {len(ids) for ids in first.generated_ids} == {NEW_TOKENS}
    assert first.waited_s == 0.0


def test_the_short_requests_alone_are_timed(crowd: Crowd, stored: CakeHistory) -> None:
    assert crowd.shorts_s() > 0
    assert {step.stop_position for step in stored.model.steps} <= set(range(SHORT_TOKENS + 4))
    assert sum(step.token_count for step in stored.model.steps[:2]) == 2 * SHORT_TOKENS + 1
