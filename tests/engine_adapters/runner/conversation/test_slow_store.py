"""The window of a conversation is waited for as long as computing it once more warrants."""

from collections.abc import Callable, Sequence

import pytest

from engine_adapters.conversation.history import dropped, overflow_cut
from engine_adapters.reading.span import Span
from engine_adapters.restore import ComputeCost, Preload
from engine_adapters.restore.stake import BLIND_SHARE, STAKE_SHARE
from engine_adapters.runner.conversation.continued import ConversationStore
from engine_adapters.runner.conversation.load_batches import token_count_of
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.restore.loading_limit import LoadingLimit
from engine_adapters.runner.restore.restore_options import RestoreOptions
from kvstored_client.testing import Delivery, MemoryClient
from kvstored_contract.keys import Cut
from tests.engine_adapters.runner.conversation.lab import (
    CHUNK_TOKENS,
    NAME,
    WINDOW,
    Lab,
    prompt_of,
)
from tests.engine_adapters.runner.memory import Clock, let_waits_take_time

TOKEN_S = 1.0
LOOKS_MAX = 20_000
READS = 3
"""Of the window; those before the last one reach the last cut."""


class SlowStore:
    """A stored conversation in a store that brings nothing unless a test lets it."""

    def __init__(self, lab: Lab, *, preload: Preload = Preload.SPANS) -> None:
        self.clock = Clock()
        self.client = MemoryClient(lab.store)
        options = RestoreOptions(
            compute=ComputeCost(step_s=0.0, token_s=TOKEN_S, attention_s=0.0),
            least_wait_s=0.0,
            span_tokens=16,
            clock=self.clock,
            preload=preload,
        )
        self._talks = ConversationStore(self.client, lab.state_format, lab.model, options=options)
        self.talk = self._talks.open(NAME)
        # Its words are there.
        lab.store.faults.delivery = Delivery.HELD
        let_waits_take_time(lab.store, self.clock)
        self._cache: KvCache = lab.model.make_cache(2 * WINDOW)

    def restored(
        self, *, deliver: Callable[[], bool], cuts: Sequence[Cut] | None = None
    ) -> RestoreReport:
        """What the window came to; all that was asked for arrives where ``deliver`` says so."""
        cuts = self.talk.told.cuts if cuts is None else cuts
        restoration = self.talk.begin(cuts, cache=self._cache, first_slot=0, new_tokens=1)
        assert restoration is not None
        for _ in range(LOOKS_MAX):
            restoration.advance(0)
            if restoration.state.is_over:
                break
            if deliver():
                self.client.store.deliver()
            restoration.wait(1e-3)
        assert restoration.state.is_over
        report = restoration.close()
        self._talks.close()
        return report


@pytest.fixture
def slow(make_lab: Callable[[], Lab]) -> SlowStore:
    """After turns of which the last ones were cut."""
    lab = make_lab()
    for number in range(5):
        lab.turn(prompt_of(number, 12), 4)
    return SlowStore(lab)


def test_a_conversation_was_waited_for_thirty_seconds(slow: SlowStore) -> None:
    """Bug: where the store is silent, whatever computing costs."""
    slow.restored(deliver=lambda: False)
    assert slow.talk.usable.token_count == 0
    assert 0 < slow.clock.now_s <= BLIND_SHARE * len(slow.talk.told.token_ids) * TOKEN_S * 1.001


def test_a_conversation_whose_store_falls_silent_costs_what_came_before_and_a_stake(
    slow: SlowStore,
) -> None:
    report = slow.restored(deliver=lambda: len(slow.client.store.reads) < 2)
    assert report.restored_tokens == slow.talk.usable.token_count
    assert slow.clock.now_s <= (BLIND_SHARE + STAKE_SHARE) * len(slow.talk.told.token_ids) * TOKEN_S


def test_a_conversation_that_comes_as_fast_as_it_is_asked_for_is_restored(slow: SlowStore) -> None:
    slow.restored(deliver=lambda: True)
    assert slow.talk.usable.cut_count == len(slow.talk.told.cuts) > 0
    assert slow.talk.usable.next_token == slow.talk.conversation.computed_tokens


@pytest.mark.parametrize("sinks", [0, 2])
def test_a_chunk_with_few_tokens_of_the_window_counted_whole(
    make_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch, sinks: int
) -> None:
    """Bug: what came after it seemed to be computed in no time, and was given up."""
    lab = make_lab(sinks=sinks)
    for number in range(5):
        lab.turn(prompt_of(number, 12), 4)
    slow = SlowStore(lab)
    gained: list[tuple[int, int]] = []
    gain = LoadingLimit.gain

    def noted(limit: LoadingLimit, first: int, stop: int) -> None:
        gained.append((first, stop))
        gain(limit, first, stop)

    monkeypatch.setattr(LoadingLimit, "gain", noted)
    slow.restored(deliver=lambda: True)
    pieces = slow.talk.usable.pieces
    assert pieces[0].token_count < CHUNK_TOKENS
    # The first span is one chunk.
    assert gained[0] == (0, token_count_of(pieces, range(1)))
    assert [first for first, _ in gained[1:]] == [stop for _, stop in gained[:-1]]
    assert gained[-1][1] == slow.talk.usable.token_count


def test_what_is_missing_after_the_last_cut_was_waited_for_as_if_all_were_lost(
    slow: SlowStore,
) -> None:
    """Bug: a store that falls silent there was waited for many times what computing takes."""
    came_s, reads = 0.0, slow.client.store.reads
    before = len(reads)

    def deliver() -> bool:
        nonlocal came_s
        for read in reads[:-1] if len(reads) == before + READS else reads:
            if read.deliver():
                came_s = slow.clock.now_s
        return False

    report = slow.restored(deliver=deliver)
    rest = len(slow.talk.told.token_ids) - slow.talk.usable.next_token
    assert 0 < rest < WINDOW
    assert report.restored_tokens > 0
    assert slow.clock.now_s - came_s <= 1.001 * rest * TOKEN_S


def test_the_last_chunk_that_came_between_two_looks_ended_the_turn(
    slow: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: it was asked whether the chunk after it was lost, and there is none (IndexError)."""
    look = Span.arrived_chunks

    def look_and_deliver(span: Span, layer: int) -> int:
        arrived = look(span, layer)
        slow.client.store.deliver()
        return arrived

    monkeypatch.setattr(Span, "arrived_chunks", look_and_deliver)
    slow.restored(deliver=lambda: False)
    assert slow.talk.usable.next_token == slow.talk.conversation.computed_tokens


def test_a_prompt_that_leaves_nothing_of_the_window_raised(slow: SlowStore) -> None:
    """Bug: what computing the window again costs for each of its tokens was divided by none."""
    stop = len(slow.talk.told.token_ids)
    cut = overflow_cut(
        slow.talk.told.cuts, stop, new_count=WINDOW, window_tokens=WINDOW, sink_tokens=0
    )
    assert cut is not None
    cuts = (*slow.talk.told.cuts, cut)
    assert dropped(cuts) == stop
    slow.restored(deliver=lambda: True, cuts=cuts)
    assert slow.talk.usable.token_count == 0
