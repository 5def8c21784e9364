"""Linked requests in the scheduler: their load, their jumps, and that nothing of them is saved."""

import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from engine_adapters.vllm.identity.chunk_keys import KeyChain, RequestIdentity
from engine_adapters.vllm.messages.linked_span import LinkedSpan
from engine_adapters.vllm.messages.orders import LoadEnd, LoadOrder, LoadProgress, WorkerReport
from engine_adapters.vllm.scheduler_side.found import Found
from engine_adapters.vllm.scheduler_side.lookup import PendingLookup
from engine_adapters.vllm.settings.options import RestoreMode
from tests.engine_adapters.vllm.scheduler_side.sides import (
    BLOCK_TOKENS,
    CHUNK_TOKENS,
    scheduler_side,
)

TOKENS = 400
ENTRIES = [[10, 150], [200, 270]]
"""Two whole chunks, and one."""
PROMPT = list(range(TOKENS))


class Blocks:
    """The scheduler's, with room or without."""

    def __init__(self) -> None:
        self.has_room = True

    def ids_of(self, request_id: str) -> tuple[int, ...]:
        return tuple(range(100, 100 + TOKENS // BLOCK_TOKENS))

    def reserve_all(self, request: Any) -> bool:
        return self.has_room


class Lab:
    """One request and the store's side of it, which has every chunk unless ``is_empty``."""

    def __init__(
        self,
        *,
        is_empty: bool = False,
        entries: list[list[int]] = ENTRIES,
        worker_count: int = 1,
    ) -> None:
        self.blocks = Blocks()
        self.asked: list[list[int]] = []
        self.lookup = Mock()
        self.lookup.ask = self._ask
        self._is_empty = is_empty
        self.side = scheduler_side(
            self.lookup,
            RestoreMode.PIC,
            step_tokens=TOKENS,
            hints=self.hints,
            worker_count=worker_count,
        )
        self.request: Any = SimpleNamespace(
            request_id="a",
            all_token_ids=PROMPT,
            num_preemptions=0,
            num_prompt_tokens=TOKENS,
            num_tokens=TOKENS,
            num_computed_tokens=0,
            skip_reading_prefix_cache=False,
            lora_request=None,
            prefill_stats=None,
            block_hashes=[],
            cache_salt=None,
            mm_features=[],
            kv_transfer_params={"entries": entries, "link": "naive"},
            update_block_hashes=lambda: None,
        )
        self.side.add_request(self.request)

    hints = Mock()

    def _ask(self, identity: RequestIdentity, token_ids: list[int], **_: Any) -> PendingLookup:
        self.asked.append(token_ids)
        chain = KeyChain(
            namespace="n", fingerprint="m", identity=identity, chunk_tokens=CHUNK_TOKENS
        )
        count = 0 if self._is_empty else len(chain.extend(token_ids))
        answer: Future[Found] = Future()
        answer.set_result(Found(chain=chain, chunk_count=count, leases=(Mock(),)))
        return PendingLookup(answer, time.monotonic())

    def admit(self) -> int:
        """As vLLM admits a request; the tokens of its first step."""
        assert self.side.matched_tokens(self.request, 0) == (0, False)
        count = self.side.clipped_tokens("a", 0, TOKENS)
        self.side.allocated(self.request, 0, self.blocks)
        return count

    def step(self, count: int, *, preempted: tuple[str, ...] = ()) -> tuple[LoadOrder, ...]:
        """Schedules so many tokens of the request; the loads that are ordered."""
        orders = self.side.step_orders({"a": count}, preempted, self.blocks)
        assert not orders.claims
        assert not orders.saves
        self.request.num_computed_tokens += count
        self.cancels = orders.cancels
        return orders.loads

    def next_count(self) -> int:
        """Of the step that follows, after a jump where one is due."""
        self.side.jump_linked()
        position = self.request.num_computed_tokens
        return self.side.clipped_tokens("a", position, TOKENS - position)


def test_a_linked_prompt_is_computed_between_its_entries() -> None:
    lab = Lab()
    assert lab.asked == [PROMPT[10:150], PROMPT[200:270]]
    assert lab.admit() == 10
    (load,) = lab.step(10)
    assert isinstance(load.span, LinkedSpan)
    assert load.span.first_tokens == (10, 74, 200)
    assert load.is_linked
    assert len(set(load.chain_keys)) == 3
    assert lab.next_count() == 0
    progress = {load.load_id: LoadProgress(first_loaded=1)}
    lab.side.take_report(WorkerReport(progress=progress))
    # What follows the first entry, and its end, is computed while the second one is loaded.
    assert lab.next_count() == 200 - 138
    assert lab.request.num_computed_tokens == 138
    assert lab.step(62) == ()
    assert lab.next_count() == 0
    lab.side.take_report(WorkerReport(ends=(LoadEnd(load_id=load.load_id, loaded_blocks=12),)))
    assert lab.next_count() == TOKENS - 264
    assert lab.side.tally.take()["jumped_tokens"] == 3 * CHUNK_TOKENS
    lab.step(TOKENS - 264)
    assert lab.cancels == {load.load_id}, "workers forget it"


def test_lost_chunks_are_computed() -> None:
    lab = Lab()
    lab.admit()
    (load,) = lab.step(10)
    end = LoadEnd(load_id=load.load_id, loaded_blocks=4, lost_chunks=(1,))
    lab.side.take_report(WorkerReport(ends=(end,)))
    assert lab.next_count() == TOKENS - 74


def test_what_the_first_worker_has_lost_is_computed_too() -> None:
    """Bug: only what the last one had lost was heard."""
    lab = Lab(worker_count=2)
    lab.admit()
    (load,) = lab.step(10)
    for lost in ((1,), ()):
        end = LoadEnd(load_id=load.load_id, loaded_blocks=4, lost_chunks=lost)
        lab.side.take_report(WorkerReport(ends=(end,)))
    assert lab.next_count() == TOKENS - 74


@pytest.mark.parametrize("is_empty", [False, True])
def test_without_blocks_or_entries_all_is_computed(is_empty: bool) -> None:
    lab = Lab(is_empty=is_empty)
    lab.blocks.has_room = False
    lab.admit()
    assert lab.step(10) == ()
    assert lab.next_count() == TOKENS - 10
    assert lab.lookup.release.call_count == 1


def test_a_preempted_request_is_linked_again() -> None:
    lab = Lab()
    lab.admit()
    (first,) = lab.step(10)
    lab.side.take_report(WorkerReport(ends=(LoadEnd(load_id=first.load_id, loaded_blocks=12),)))
    assert lab.next_count() == 200 - 138
    salt = lab.request.cache_salt
    lab.request.num_computed_tokens, lab.request.num_preemptions = 0, 1
    lab.side.step_orders({}, ("a",), lab.blocks)
    assert lab.request.cache_salt != salt, "it would find blocks that a load writes over"
    assert lab.next_count() == TOKENS
    assert lab.request.num_computed_tokens == 0, "it does not run"
    assert lab.admit() == 10
    (second,) = lab.step(10)
    assert second.load_id != first.load_id
    assert second.chain_keys == first.chain_keys


def test_one_that_goes_on_at_another_position_keeps_its_load() -> None:
    """Bug: the V2 model runner gets a jump by a preemption; that ended the load."""
    lab = Lab()
    lab.admit()
    (load,) = lab.step(10)
    progress = {load.load_id: LoadProgress(first_loaded=1)}
    lab.side.take_report(WorkerReport(progress=progress))
    count = lab.next_count()
    assert lab.request.num_computed_tokens == 138
    lab.side.allocated(lab.request, 0, lab.blocks)
    assert lab.step(count, preempted=("a",)) == ()
    assert lab.cancels == frozenset()
    lab.side.take_report(WorkerReport(ends=(LoadEnd(load_id=load.load_id, loaded_blocks=12),)))
    assert lab.next_count() == TOKENS - 264


def test_one_that_is_preempted_between_two_steps_jumps_no_more() -> None:
    """Bug: vLLM resets its prefix cache so; the request went on behind what it had lost."""
    lab = Lab(entries=[[0, 140]])
    lab.admit()
    (load,) = lab.step(1)
    lab.side.take_report(WorkerReport(ends=(LoadEnd(load_id=load.load_id, loaded_blocks=8),)))
    lab.request.num_computed_tokens, lab.request.num_preemptions = 0, 1
    lab.side.jump_linked()
    assert lab.request.num_computed_tokens == 0
    assert lab.admit() == 1
    (again,) = lab.step(1, preempted=("a",))
    assert again.chain_keys == load.chain_keys
    assert lab.next_count() == 0


def test_a_prompt_whose_first_states_are_there_is_computed() -> None:
    """Bug: it was admitted in the middle of an entry with no token to compute, so it never was."""
    lab = Lab()
    assert lab.side.matched_tokens(lab.request, 96) == (0, False)
    assert lab.side.clipped_tokens("a", 96, TOKENS - 96) == TOKENS - 96


def test_a_request_that_has_ended_is_forgotten() -> None:
    lab = Lab()
    lab.admit()
    (load,) = lab.step(10)
    lab.side.finish_request("a")
    assert lab.step(0) == ()
    assert lab.cancels == {load.load_id}
    lab.request.num_computed_tokens = 20
    lab.side.jump_linked()
    assert lab.request.num_computed_tokens == 20
