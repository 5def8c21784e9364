"""What a step of the scheduler waits for."""

import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from engine_adapters.vllm.identity.chunk_keys import RequestIdentity
from engine_adapters.vllm.messages.orders import WorkerReport
from engine_adapters.vllm.scheduler_side.found import Found
from engine_adapters.vllm.scheduler_side.load_choice import LoadChoice
from engine_adapters.vllm.scheduler_side.lookup import PendingLookup
from engine_adapters.vllm.scheduler_side.side import SchedulerSide
from engine_adapters.vllm.settings.options import AdapterOptions, RestoreMode

REQUESTS = 200
OPTIONS = AdapterOptions()


class CountedLookup(PendingLookup):
    """Has no answer, and counts how long that is waited for."""

    waited_s = 0.0

    def __init__(self) -> None:
        super().__init__(Future(), time.monotonic() + 3600)

    def result(self, wait_s: float) -> Found | None:
        CountedLookup.waited_s += wait_s
        time.sleep(wait_s)
        return super().result(0.0)


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> tuple[SchedulerSide, list[Any]]:
    """Many requests that the store has not answered."""
    monkeypatch.setattr(CountedLookup, "waited_s", 0.0)
    lookup = Mock()
    lookup.ask = lambda *_, **__: CountedLookup()
    side = SchedulerSide(
        OPTIONS,
        fingerprint="m",
        identifier=Mock(identity_of=lambda _request: RequestIdentity()),
        lookup=lookup,
        choice=LoadChoice(mode=RestoreMode.PREFIX, planner=Mock(chunk_tokens=64), block_tokens=16),
        worker_count=1,
    )
    requests: list[Any] = [
        SimpleNamespace(
            request_id=f"{number}",
            all_token_ids=[1] * 100,
            num_preemptions=0,
            num_tokens=100,
            skip_reading_prefix_cache=False,
        )
        for number in range(REQUESTS)
    ]
    for request in requests:
        side.add_request(request)
    return side, requests


def test_scheduler_went_on_promising_loads_that_a_refused_worker_could_not_do(
    waiting: tuple[SchedulerSide, list[Any]],
) -> None:
    """Bug: it never learnt of the refusal; each hit was a load that lost all of its blocks."""
    side, _ = waiting
    side.take_report(WorkerReport())
    assert not side.lookup.hear_refusals.called  # type: ignore[attr-defined]  # a mock
    side.take_report(WorkerReport(refusals={1: "no"}))
    side.lookup.hear_refusals.assert_called_once_with({1: "no"})  # type: ignore[attr-defined]


def test_step_waits_a_millisecond_for_each_of_two_hundred_requests(
    waiting: tuple[SchedulerSide, list[Any]],
) -> None:
    """Bug: a burst of 200 requests stalled every decode by 200 ms."""
    side, requests = waiting
    for steps in (1, 2, 3):
        answers = [side.matched_tokens(request, 0) for request in requests]
        assert answers == [(None, False)] * REQUESTS
        side.step_orders({}, (), Mock())
        assert CountedLookup.waited_s <= steps * OPTIONS.match_wait_s * (1 + 1e-9)
    assert CountedLookup.waited_s > 0.0
