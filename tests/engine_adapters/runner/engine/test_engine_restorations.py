"""How an engine shares its steps and waits among the restorations that run."""

from collections.abc import Callable

import pytest

from engine_adapters.runner.engine.engine import ALONE_PIECE_TOKENS, WAIT_S_MAX, Engine
from engine_adapters.runner.engine.restoration import PIECE_TOKENS
from engine_adapters.runner.model.model import Model
from tests.engine_adapters.runner.scripted_restorations import (
    ScriptedRestoration,
    ScriptedRestorer,
)
from tests.engine_adapters.runner.step_log import StepLog

MakeTokens = Callable[[int, int], list[int]]


def test_a_request_whose_loading_was_over_starved_behind_prefills(
    model: Model, make_tokens: MakeTokens
) -> None:
    log = StepLog()
    restoration = ScriptedRestoration(step_tokens=16, is_loading=True)
    engine = Engine(
        model,
        cache_tokens=512,
        token_budget=16,
        requests_max=2,
        sink=log,
        restorer=ScriptedRestorer(restoration),
    )
    restored = engine.add_request(make_tokens(100, 1), new_tokens_max=1)
    other = engine.add_request(make_tokens(100, 2), new_tokens_max=1)
    engine.step()
    restoration.is_loading = False
    engine.step()
    assert log.steps == [[(other, 16)], [(restored, 16)]]


@pytest.mark.parametrize(
    ("others", "tokens"), [(1, PIECE_TOKENS), (0, ALONE_PIECE_TOKENS)], ids=["others", "alone"]
)
def test_each_of_many_restorations_took_as_much_in_a_step_as_one_may(
    others: int, tokens: int, model: Model, make_tokens: MakeTokens
) -> None:
    """And where nobody else was held up, no more than 8 chunks of 128 tokens for each step."""
    restorations = [ScriptedRestoration(step_tokens=1, is_loading=True) for _ in range(4)]
    engine = Engine(model, cache_tokens=256, restorer=ScriptedRestorer(*restorations))
    for _ in range(len(restorations) + others):
        engine.add_request(make_tokens(20, 1), new_tokens_max=3)
    # In the first step it shows that nothing of the other one is stored.
    engine.step()
    engine.step()
    assert [each.pieces[1] for each in restorations] == [tokens // 4] * 4


def test_a_restoration_hears_of_all_tokens_of_a_step(model: Model, make_tokens: MakeTokens) -> None:
    restoration = ScriptedRestoration(step_tokens=16, is_loading=True)
    engine = Engine(
        model,
        cache_tokens=256,
        token_budget=16,
        requests_max=2,
        restorer=ScriptedRestorer(restoration),
    )
    engine.add_request(make_tokens(100, 1), new_tokens_max=1)
    engine.add_request(make_tokens(20, 2), new_tokens_max=1)
    for _ in range(3):
        engine.step()
    assert restoration.steps == [(12, 16), (16, 16)]


@pytest.mark.parametrize(("count", "wait_s"), [(1, WAIT_S_MAX), (2, 0.005), (3, 0.005)])
def test_what_arrives_for_another_restoration_was_seen_late(
    count: int, wait_s: float, model: Model, make_tokens: MakeTokens
) -> None:
    restorations = [ScriptedRestoration(step_tokens=0, is_loading=True) for _ in range(count)]
    engine = Engine(model, cache_tokens=256, restorer=ScriptedRestorer(*restorations))
    for _ in restorations:
        engine.add_request(make_tokens(20, 1), new_tokens_max=1)
    engine.step()
    assert [wait for each in restorations for wait in each.waits_s] == [wait_s]
