"""Requests that end early: by their caller's word, or because a step could not be computed."""

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.engine.sampling import Sampler
from engine_adapters.runner.model.errors import StepError
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client.testing import Delivery, MemoryClient
from tests.engine_adapters.runner.memory import check_released, make_store
from tests.support.waiting import SOON_S, wait_until

MakeTokens = Callable[[int, int], list[int]]
FAULT = "the device is out of memory"


class Faulty:
    """Lets calls through until one is to fail."""

    def __init__(self, wrapped: Callable[..., Any]) -> None:
        self.fails = False
        self._wrapped = wrapped

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        result = self._wrapped(*arguments, **options)
        if self.fails:
            self.fails = False
            raise RuntimeError(FAULT)
        return result


def generate(model: Model, prompt: list[int], new_tokens: int) -> tuple[int, ...]:
    engine = Engine(model, cache_tokens=256)
    engine.add_request(prompt, new_tokens_max=new_tokens, stop_token_ids=())
    return engine.run()[0].token_ids


def add(engine: Engine, prompt: list[int], new_tokens: int = 6) -> int:
    return engine.add_request(prompt, new_tokens_max=new_tokens, stop_token_ids=())


@pytest.fixture
def forward(model: Model, monkeypatch: pytest.MonkeyPatch) -> Faulty:
    faulty = Faulty(model.forward)
    monkeypatch.setattr(model, "forward", faulty)
    return faulty


def test_one_failed_forward_lost_all_running_requests(
    model: Model, state_format: StateFormat, make_tokens: MakeTokens, forward: Faulty
) -> None:
    """Slots were lost and restorations stayed open; those that took no part ended as well."""
    prompts = [make_tokens(20, seed) for seed in range(3)]
    client = MemoryClient(make_store())
    saver = StateSaver(client, state_format)
    engine = Engine(model, cache_tokens=80, token_budget=8, requests_max=3, sink=saver)
    taking_part = add(engine, prompts[0])
    outside = add(engine, prompts[1])
    waiting = add(engine, prompts[2])
    forward.fails = True
    (failed,) = engine.step()
    assert failed.request_id == taking_part
    assert isinstance(failed.error, StepError)
    assert str(failed.error) == f"request {taking_part} ended early: {FAULT}"
    assert failed.generated_ids == ()
    # Its slots are free: another one of its size runs beside the others again.
    assert engine._pool.free_count >= len(prompts[0]) + 6
    again = add(engine, prompts[0])
    completions = {done.request_id: done for done in engine.run()}
    for request_id, prompt in ((outside, prompts[1]), (waiting, prompts[2]), (again, prompts[0])):
        assert completions[request_id].error is None
        assert completions[request_id].token_ids == generate(model, prompt, 6)
    assert engine._pool.free_count == 80
    saver.close()
    check_released(client.store)


def test_a_step_that_failed_last_left_its_snapshot_in_the_arena(
    model: Model,
    state_format: StateFormat,
    make_tokens: MakeTokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: until the next step or the end of the saver, although nobody else had the room."""
    client = MemoryClient(make_store())
    saver = StateSaver(client, state_format)
    engine = Engine(model, cache_tokens=80, sink=saver)
    add(engine, make_tokens(20, 1))

    def fail_inside(*_: object) -> None:
        """In the middle of a step."""
        raise RuntimeError(FAULT)

    monkeypatch.setattr(saver, "take", fail_inside)
    (failed,) = engine.run()
    assert failed.error is not None
    assert engine.is_idle
    saver.finish()
    assert client.store.regions_in_use == 0
    saver.close()
    check_released(client.store)


def test_a_request_whose_logits_cannot_be_sampled_ends_alone(
    model: Model, make_tokens: MakeTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = Sampler.choose
    broken: list[Sampler] = []

    def choose_or_fail(self: Sampler, row: Tensor) -> int:
        if self in broken:
            raise ValueError("a logit is no number")
        return choose(self, row)

    monkeypatch.setattr(Sampler, "choose", choose_or_fail)
    engine = Engine(model, cache_tokens=128)
    bad, good = add(engine, make_tokens(10, 1)), add(engine, make_tokens(10, 2))
    engine.step()
    broken.append(engine._running[bad].sampler)
    completions = {done.request_id: done for done in engine.run()}
    assert completions[bad].error is not None
    assert len(completions[bad].generated_ids) == 1
    assert completions[good].token_ids == generate(model, make_tokens(10, 2), 6)


class RestoringLab:
    """A stored history whose restoration waits for a store that brings nothing."""

    def __init__(self, model: Model, state_format: StateFormat, prompt: list[int]) -> None:
        self.client = MemoryClient(make_store())
        saver = StateSaver(self.client, state_format)
        engine = Engine(model, cache_tokens=128, sink=saver)
        add(engine, prompt, 1)
        engine.run()
        saver.close()
        self.client.store.faults.delivery = Delivery.HELD
        self.client.store.faults.on_wait = lambda wait: True
        self.restorer = Restorer(self.client, state_format, model, RestoreOptions(timeout_s=600.0))
        self.engine = Engine(model, cache_tokens=128, requests_max=2, restorer=self.restorer)

    def check_released(self) -> None:
        """Its region goes back when its request ends, not when the restorer does."""
        wait_until(lambda: self.client.store.regions_in_use == 0, within_s=SOON_S)
        self.restorer.close()
        check_released(self.client.store)


@pytest.fixture
def restoring(model: Model, state_format: StateFormat, make_tokens: MakeTokens) -> RestoringLab:
    return RestoringLab(model, state_format, make_tokens(40, 1))


def test_nobody_could_end_a_request_that_is_wanted_no_more(
    restoring: RestoringLab, model: Model, make_tokens: MakeTokens
) -> None:
    engine = restoring.engine
    restored = add(engine, make_tokens(40, 1))
    other = add(engine, make_tokens(10, 2))
    queued = add(engine, make_tokens(60, 3))
    for _ in range(2):
        engine.step()
    assert engine.abort(restored)
    assert engine.abort(queued)
    assert not engine.abort(restored)
    (completion,) = engine.run()
    assert completion.request_id == other
    assert completion.token_ids == generate(model, make_tokens(10, 2), 6)
    assert engine._pool.free_count == 128
    restoring.check_released()


def test_a_saved_request_that_is_aborted_keeps_its_complete_chunks(
    model: Model, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    client = MemoryClient(make_store())
    saver = StateSaver(client, state_format)
    engine = Engine(model, cache_tokens=128, sink=saver)
    request_id = add(engine, make_tokens(20, 1))
    engine.step()
    assert engine.abort(request_id)
    assert engine.is_idle
    assert saver.finish().saved_tokens == 16
    saver.close()
    check_released(client.store)


def test_a_restoration_that_fails_ends_its_own_request_only(
    restoring: RestoringLab,
    model: Model,
    make_tokens: MakeTokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other one is too short to have anything stored."""
    engine = restoring.engine
    restored = add(engine, make_tokens(40, 1))
    other = add(engine, make_tokens(7, 2))
    engine.step()
    restoration = engine._running[restored].restoration

    def fail(*_: object, **__: object) -> int:
        raise RuntimeError(FAULT)

    monkeypatch.setattr(type(restoration), "advance", fail)
    completions: dict[int, Completion] = {done.request_id: done for done in engine.run()}
    assert isinstance(completions[restored].error, StepError)
    assert completions[other].token_ids == generate(model, make_tokens(7, 2), 6)
    restoring.check_released()
