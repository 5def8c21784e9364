"""From both ends, while it is not known yet what the store has: computing goes on."""

from typing import Any

import pytest

from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.model.model import Model
from kvstored_protos.v1.store_pb2 import PinRequest
from tests.engine_adapters.runner.cake_lab import (
    CHUNK_TOKENS,
    CHUNKS,
    EXACT_IN_ANY_STEPS,
    Lab,
    LabClient,
    check_states,
    restore,
)
from tests.engine_adapters.runner.memory import at
from tests.support.waiting import wait_until


@pytest.fixture(scope="module", params=[Source.KV, Source.HIDDEN])
def lab(request: pytest.FixtureRequest, model: Model) -> Lab:
    return Lab(model, LayerSchedule.of((request.param, 3)))


def late_client(lab: Lab, answers_at_s: float, *, is_empty: bool = False) -> LabClient:
    """Of a store that says what it has when the engine's clock is past a moment."""
    client = LabClient({} if is_empty else lab.chunks)
    client.store.faults.before = at(
        PinRequest, lambda: wait_until(lambda: client.clock.now_s > answers_at_s)
    )
    return client


def test_opening_stalled_a_request_for_longer_than_computing_takes(lab: Lab) -> None:
    """17 tokens take two steps of 0.2 s and 0.05 s each; a step of the engine takes 1 s more."""
    prompt_tokens, alone_s = 2 * CHUNK_TOKENS + 1, 2 * 0.2 + 17 * 0.05
    client = late_client(lab, 2 * alone_s)
    restored = restore(lab, client, prompt_tokens=prompt_tokens, answers_at_s=2 * alone_s)
    assert restored.completion.restore.waited_s == pytest.approx(0.04 * alone_s, abs=0.01)


def test_nothing_was_computed_until_it_was_known_what_is_stored(lab: Lab) -> None:
    """Loading then brings what is behind the tokens that were computed meanwhile."""
    client = late_client(lab, 3)
    restored = restore(lab, client, arrivals=(2,), answers_at_s=3, saves=True)
    check_states(lab, restored, difference_max=EXACT_IN_ANY_STEPS)
    report = restored.completion.restore
    assert report.waited_s < 1
    assert report.meeting_token is not None
    assert report.meeting_token >= 2 * CHUNK_TOKENS
    assert report.restored_tokens > 0


def test_a_prompt_that_was_computed_before_the_store_answered_was_saved_in_part(lab: Lab) -> None:
    client = late_client(lab, 3, is_empty=True)
    restore(lab, client, answers_at_s=3, saves=True)
    assert client.store.chunks.keys() >= set(lab.keys[:CHUNKS])


def test_a_prompt_without_a_whole_chunk_waited_for_the_store(lab: Lab) -> None:
    client = LabClient(lab.chunks)
    prefix_keys = client.prefix_keys

    def answer_late(*arguments: Any, **options: Any) -> Any:
        wait_until(lambda: client.clock.now_s > 0.5)
        return prefix_keys(*arguments, **options)

    client.prefix_keys = answer_late  # type: ignore[method-assign]
    restored = restore(lab, client, prompt_tokens=CHUNK_TOKENS)
    assert restored.completion.restore.waited_s == 0
