"""Requests whose prompts are linked, as the engine sees them."""

from collections.abc import Callable
from unittest.mock import Mock

import pytest

from engine_adapters.link.rows import RowGroup
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.linking import LinkTrack
from engine_adapters.runner.engine.restoration import Restoration
from engine_adapters.runner.model.errors import RequestError
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from tests.engine_adapters.runner.step_log import StepLog

COUNT = 12


class AllNew:
    """A prompt of which nothing is stored; ``groups`` as given, and how often it is held."""

    def __init__(self, *groups: RowGroup) -> None:
        self.groups = groups
        self.holds = 0

    def hold(self) -> None:
        self.holds += 1

    def end(self) -> None:
        self.holds -= 1

    def begin(self, *, cache: KvCache, first_slot: int) -> Restoration | None:
        return None


def test_a_track_loses_what_is_computed() -> None:
    track = LinkTrack(AllNew(RowGroup(3, (range(3, 5),)), RowGroup(0, (range(4), range(7, 9)))))
    track.advance(4)
    assert track.groups == (RowGroup(0, (range(2, 4), range(7, 9))),)
    track.look()
    assert track.groups == (RowGroup(0, (range(2, 4), range(7, 9))),)


def test_a_track_learns_of_more_while_entries_come() -> None:
    link = AllNew(RowGroup(0, (range(4),)))
    track = LinkTrack(link)
    track.advance(3)
    link.groups = (*link.groups, RowGroup(9, (range(9, 11),)))
    track.look()
    assert track.groups == (RowGroup(0, (range(3, 4),)), RowGroup(9, (range(9, 11),)))
    track.advance(3)
    assert not track.groups
    assert track.computed_count == 6


def test_no_sink_hears_of_a_linked_request(
    model: Model, make_tokens: Callable[[int, int], list[int]]
) -> None:
    """Its states would have the keys of a plain prompt, and are others."""
    log = StepLog()
    prompt = make_tokens(COUNT, 1)
    engine = Engine(model, cache_tokens=100, sink=log)
    linked = engine.add_request(prompt, new_tokens_max=3, link=AllNew(RowGroup(0, (range(COUNT),))))
    plain = engine.add_request(prompt, new_tokens_max=3)
    found = {completion.request_id: completion for completion in engine.run()}
    assert found[linked].generated_ids == found[plain].generated_ids
    assert found[linked].computed_tokens == found[plain].computed_tokens == COUNT + 2
    assert log.announced == {plain: 0}


def test_a_linked_request_that_is_aborted_gives_its_slots_back(model: Model) -> None:
    engine = Engine(model, cache_tokens=20, token_budget=4, requests_max=1)
    number = engine.add_request(
        [1] * COUNT, new_tokens_max=3, link=AllNew(RowGroup(0, (range(COUNT),)))
    )
    engine.step()
    assert engine.abort(number)
    assert engine.is_idle
    assert engine._pool.free_count == 20


def test_entries_are_held_from_when_a_request_is_added_to_its_end(model: Model) -> None:
    engine = Engine(model, cache_tokens=20, requests_max=1)
    first, second, third = (AllNew(RowGroup(0, (range(COUNT),))) for _ in range(3))
    for link in (first, second, third):
        number = engine.add_request([1] * COUNT, new_tokens_max=3, link=link)
        assert link.holds == 1
    engine.step()
    assert first.holds == 1
    # One that still waits, and is not wanted any more.
    assert engine.abort(number)
    assert third.holds == 0
    engine.run()
    assert first.holds == second.holds == 0
    with pytest.raises(RequestError):
        engine.add_request([1] * 21, new_tokens_max=3, link=third)
    assert third.holds == 0


def test_a_request_that_fails_lets_its_entries_go(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(model, cache_tokens=20)
    link = AllNew(RowGroup(0, (range(COUNT),)))
    engine.add_request([1] * COUNT, new_tokens_max=3, link=link)
    monkeypatch.setattr(model, "forward", Mock(side_effect=RuntimeError("broken")))
    (completion,) = engine.run()
    assert completion.error is not None
    assert link.holds == 0


def test_a_linked_prompt_continues_no_conversation(model: Model) -> None:
    with pytest.raises(RequestError, match="cannot continue a conversation"):
        Engine(model, cache_tokens=20).add_request(
            [1], new_tokens_max=1, link=AllNew(), conversation=Mock()
        )


def test_a_linked_request_of_two_groups_ended_the_engine_with_its_step(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: it was ended once for each group of the step, and the second time was an error."""
    engine = Engine(model, cache_tokens=40, token_budget=COUNT, requests_max=2)
    link = AllNew(RowGroup(3, (range(3, 5),)), RowGroup(0, (range(3), range(5, COUNT))))
    linked = engine.add_request([1] * COUNT, new_tokens_max=3, link=link)
    plain = engine.add_request([2] * COUNT, new_tokens_max=3)
    with monkeypatch.context() as patched:
        patched.setattr(model, "forward", Mock(side_effect=RuntimeError("broken")))
        failed = engine.step()
    found = {completion.request_id: completion for completion in [*failed, *engine.run()]}
    assert found[linked].error is not None
    assert link.holds == 0
    assert found[plain].error is None
    assert engine._pool.free_count == 40


def test_a_request_that_cannot_begin_ended_the_engine(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: a thread that a restoration could not start was the end of all requests."""
    engine = Engine(model, cache_tokens=40)
    link = AllNew(RowGroup(0, (range(COUNT),)))
    monkeypatch.setattr(link, "begin", Mock(side_effect=RuntimeError("can't start new thread")))
    linked = engine.add_request([1] * COUNT, new_tokens_max=3, link=link)
    plain = engine.add_request([2] * COUNT, new_tokens_max=3)
    found = {completion.request_id: completion for completion in engine.run()}
    assert "can't start new thread" in str(found[linked].error)
    assert found[plain].error is None
    assert link.holds == 0
    assert engine._pool.free_count == 40
