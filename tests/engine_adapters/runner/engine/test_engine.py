from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.sampling import Sampling
from engine_adapters.runner.model.errors import RequestError
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment

MakeTokens = Callable[[int, int], list[int]]


def generate(model: Model, prompt: list[int], **options: Any) -> Completion:
    engine = Engine(model, cache_tokens=256, **options)
    engine.add_request(prompt, new_tokens_max=20)
    (completion,) = engine.run()
    return completion


@pytest.mark.parametrize("token_budget", [1, 7, 64])
def test_chunked_prefill_equals_one_shot(
    token_budget: int, model: Model, make_tokens: MakeTokens
) -> None:
    prompt = make_tokens(100, 1)
    whole = generate(model, prompt, token_budget=512)
    chunked = generate(model, prompt, token_budget=token_budget, requests_max=1)
    assert chunked.token_ids == whole.token_ids
    assert chunked.computed_tokens == whole.computed_tokens == 119


def test_batching_changes_no_token(model: Model, make_tokens: MakeTokens) -> None:
    prompts = [make_tokens(length, length) for length in (90, 3, 41, 60, 1, 17)]
    alone = [generate(model, prompt).token_ids for prompt in prompts]
    # Too small for all of them at once: some wait until others are finished.
    engine = Engine(model, cache_tokens=180, token_budget=16, requests_max=3)
    ids = [engine.add_request(prompt, new_tokens_max=20) for prompt in prompts]
    together = {completion.request_id: completion.token_ids for completion in engine.run()}
    assert [together[request_id] for request_id in ids] == alone


class RecordingSink(NullSink):
    def __init__(self) -> None:
        self.steps: list[list[tuple[int, int]]] = []

    def begin_step(self, segments: Sequence[Segment]) -> None:
        self.steps.append([(part.request_id, part.token_count) for part in segments])


def test_requests_that_decode_are_in_every_step(model: Model, make_tokens: MakeTokens) -> None:
    sink = RecordingSink()
    engine = Engine(model, cache_tokens=256, token_budget=8, requests_max=2, sink=sink)
    first = engine.add_request(make_tokens(5, 1), new_tokens_max=10)
    second = engine.add_request(make_tokens(30, 2), new_tokens_max=2)
    engine.run()
    assert sink.steps[0] == [(first, 5), (second, 3)]
    assert sink.steps[1:5] == [[(first, 1), (second, 7)]] * 3 + [[(first, 1), (second, 6)]]
    assert sink.steps[5] == [(first, 1), (second, 1)]


def test_a_seed_decides_whatever_runs_beside(model: Model, make_tokens: MakeTokens) -> None:
    sampling = Sampling(temperature=1.0, top_p=0.9, seed=3)
    results = []
    for neighbours in (0, 2):
        engine = Engine(model, cache_tokens=256)
        for seed in range(neighbours):
            engine.add_request(
                make_tokens(9, seed), new_tokens_max=5, sampling=Sampling(temperature=1.0)
            )
        request_id = engine.add_request(make_tokens(20, 9), new_tokens_max=30, sampling=sampling)
        results += [done.token_ids for done in engine.run() if done.request_id == request_id]
    assert results[0] == results[1]
    assert results[0] != generate(model, make_tokens(20, 9)).token_ids


def test_stops_behind_a_stop_token(model: Model, make_tokens: MakeTokens) -> None:
    prompt = make_tokens(30, 3)
    generated = generate(model, prompt).generated_ids
    stop = generated[4]
    engine = Engine(model, cache_tokens=64)
    engine.add_request(prompt, new_tokens_max=20, stop_token_ids=[stop])
    (completion,) = engine.run()
    assert completion.generated_ids == generated[: generated.index(stop) + 1]


def test_times_come_from_the_clock(model: Model, make_tokens: MakeTokens) -> None:
    ticks = count()
    engine = Engine(model, cache_tokens=64, clock=lambda: float(next(ticks)))
    engine.add_request(make_tokens(4, 1), new_tokens_max=3)
    (completion,) = engine.run()
    assert (completion.ttft_s, completion.duration_s) == (1.0, 3.0)


def test_warm_up_leaves_no_trace(model: Model, make_tokens: MakeTokens) -> None:
    engine = Engine(model, cache_tokens=40)
    engine.warm_up()
    assert engine.is_idle
    assert engine.step() == []
    engine.add_request(make_tokens(20, 1), new_tokens_max=20)
    engine.step()
    with pytest.raises(RuntimeError, match="before the first request"):
        engine.warm_up()
    (completion,) = engine.run()
    assert completion.token_ids == generate(model, make_tokens(20, 1)).token_ids


@pytest.mark.parametrize(
    ("prompt", "new_tokens_max", "message"),
    [
        ([], 1, "at least one prompt token"),
        ([1], 0, "one new token"),
        ([97], 1, "0 to 96"),
        ([-1], 1, "0 to 96"),
        ([1] * 60, 5, r"exceed the cache's tokens \(64\)"),
        ([1] * 600, 5, r"exceed the model's positions \(512\)"),
    ],
)
def test_refuses_what_can_never_run(
    prompt: list[int], new_tokens_max: int, message: str, model: Model
) -> None:
    engine = Engine(model, cache_tokens=64)
    with pytest.raises(RequestError, match=message):
        engine.add_request(prompt, new_tokens_max=new_tokens_max)


@pytest.mark.parametrize("requests_max", [0, 9])
def test_refuses_more_requests_than_tokens(requests_max: int, model: Model) -> None:
    with pytest.raises(ValueError, match="requests_max must be 1 to token_budget"):
        Engine(model, cache_tokens=64, token_budget=8, requests_max=requests_max)


def test_model_stop_tokens_are_the_default(
    model: Model, make_tokens: MakeTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = make_tokens(30, 3)
    first = generate(model, prompt).generated_ids[0]
    monkeypatch.setattr(model, "config", replace(model.config, stop_token_ids=(first,)))
    assert generate(model, prompt).generated_ids == (first,)
