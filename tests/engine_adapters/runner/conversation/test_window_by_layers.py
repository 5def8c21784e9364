"""A turn is computed in the layers that its window has, while later layers come."""

import math
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine_adapters.restore import (
    ComputeCost,
    LayerCosts,
    LayerRates,
    Preload,
)
from engine_adapters.restore.stake import BLIND_SHARE, STAKE_SHARE
from engine_adapters.runner.conversation.continued import ContinuedConversation, ConversationStore
from engine_adapters.runner.conversation.piece_restoration import PieceRestoration
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion, Request
from engine_adapters.runner.engine.restoration import Restoration
from engine_adapters.runner.restore.layerwise_restoration import LayerwiseRestoration
from engine_adapters.runner.restore.restore_options import RestoreOptions
from kvstored_client.testing import MemoryClient, Wait
from tests.engine_adapters.runner.arrivals import Arrivals
from tests.engine_adapters.runner.conversation.lab import NAME, WINDOW, Lab, prompt_of
from tests.engine_adapters.runner.conversation.test_slow_store import TOKEN_S, SlowStore
from tests.engine_adapters.runner.step_log import StepLog
from tests.support.waiting import wait_until

NEW_TOKENS = 5
LAYERS = 3
SLOW = ComputeCost(step_s=0.0, token_s=1.0, attention_s=0.0)


class Turn:
    """The next turn of a conversation with cuts, whose layers come when a test says so."""

    def __init__(self, lab: Lab, *, options: RestoreOptions | None = None) -> None:
        self.lab = lab
        self.client = MemoryClient(lab.store)
        self.talks = ConversationStore(
            self.client,
            lab.state_format,
            lab.model,
            options=options or RestoreOptions(preload=Preload.LAYERS),
        )
        self.talk: ContinuedConversation = self.talks.open(NAME, sink_tokens=lab.sinks)
        self.arrivals = Arrivals(lab.store)
        self.log = StepLog()
        self.engine = Engine(
            lab.model,
            cache_tokens=4 * WINDOW,
            token_budget=32,
            requests_max=4,
            sink=self.log,
        )
        self.prompt = prompt_of(9, NEW_TOKENS)
        self.waits = 0
        """Of the engine's thread, while a test says what comes."""

    def _count_wait(self, wait: Wait) -> bool:
        is_engine = threading.current_thread() is threading.main_thread()
        if is_engine and (wait.timeout_s is None or wait.timeout_s > 0):
            self.waits += 1
        return is_engine

    def begin(self) -> Request:
        """The request, once its first layer was asked for; from here on waits bring nothing."""
        self.lab.store.faults.on_wait = self._count_wait
        asked = len(self.lab.store.reads)
        number = self.engine.add_request(self.prompt, new_tokens_max=4, conversation=self.talk)
        self.engine.step()
        wait_until(lambda: len(self.lab.store.reads) > asked)
        return self.engine._running[number]

    def bring_layer(self) -> None:
        before = self.arrivals._count

        def has_come() -> bool:
            self.arrivals.deliver(1)
            return self.arrivals._count > before

        wait_until(has_come)

    def step_until(self, request: Request, layers: int) -> None:
        """Until its new tokens rest after so many layers."""
        wait_until(lambda: self.engine.step() == [] and layers_of(request) >= layers)
        assert layers_of(request) == layers

    def finish(self) -> Completion:
        self.lab.store.faults.on_wait = self.arrivals._let_one_arrive
        done = {each.request_id: each for each in self.engine.run()}
        self.talks.close()
        return done[max(done)]

    def check(self, completion: Completion) -> None:
        """Tokens are those by hand, and none of the window was computed again."""
        answer, _ = self.lab.by_hand.turn(self.prompt, 4)
        assert completion.error is None
        assert list(completion.generated_ids) == answer
        assert completion.computed_tokens == NEW_TOKENS + 1 + 3


def layers_of(request: Request) -> int:
    return 0 if request.prefill is None else request.prefill.next_layer


@pytest.fixture
def lab(make_lab: Any) -> Lab:
    """After turns that overflowed its window."""
    lab: Lab = make_lab(sinks=2)
    for number in range(5):
        lab.turn(prompt_of(number, 12), 4)
    assert lab.by_hand.cut_count
    return lab


def test_a_layer_of_a_turn_is_computed_before_the_next_one_of_its_window_has_come(
    lab: Lab,
) -> None:
    turn = Turn(lab)
    request = turn.begin()
    assert layers_of(request) == 0
    for layer in range(LAYERS - 1):
        turn.bring_layer()
        turn.step_until(request, layer + 1)
    assert request.prefill is not None
    assert request.prefill.segment.dropped_count > 0
    turn.check(turn.finish())


def test_a_turn_beside_others_begins_when_its_buffer_is_full(lab: Lab) -> None:
    turn = Turn(lab, options=RestoreOptions(preload=Preload.LAYERS, buffer_layers=2))
    other = turn.engine.add_request(prompt_of(3, 5), new_tokens_max=40, stop_token_ids=())
    turn.engine.step()
    request = turn.begin()
    turn.bring_layer()
    # No step is spent on waiting for the reader: the other request has tokens for some only.
    wait_until(lambda: has_come(request, 0))
    for _ in range(3):
        turn.engine.step()
    assert request.open_layers is not None
    assert request.open_layers.layers == 1
    assert layers_of(request) == 0
    turn.bring_layer()
    wait_until(lambda: has_come(request, 1))
    turn.step_until(request, 2)
    assert not turn.log.steps_of(request.request_id)
    # The other one took part in every step, and none of them waited.
    assert len(turn.log.steps_of(other)) == len(turn.log.steps)
    assert turn.waits == 0
    turn.check(turn.finish())


def test_a_turn_alone_begins_with_the_first_layer(lab: Lab) -> None:
    turn = Turn(lab, options=RestoreOptions(preload=Preload.LAYERS, buffer_layers=LAYERS))
    request = turn.begin()
    turn.bring_layer()
    turn.step_until(request, 1)
    # There is nothing else to do until the next one.
    wait_until(lambda: turn.engine.step() == [] and turn.waits > 0)
    turn.check(turn.finish())


def has_come(request: Request, layer: int) -> bool:
    """Whether the next step finds a layer of the whole window."""
    restoration = request.restoration
    assert isinstance(restoration, LayerwiseRestoration)
    span = restoration._reader.first()
    return (
        span is not None and layer in span.layers and span.arrived_chunks(layer) == span.chunk_count
    )


@pytest.mark.parametrize("layers", range(LAYERS))
def test_a_store_that_dies_costs_the_window_only(lab: Lab, layers: int) -> None:
    turn = Turn(lab)
    request = turn.begin()
    for layer in range(layers):
        turn.bring_layer()
        turn.step_until(request, layer + 1)
    lab.store.kill()
    completion = turn.finish()
    answer, _ = lab.by_hand.turn(turn.prompt, 4)
    assert list(completion.generated_ids) == answer
    assert completion.restore.restored_tokens == 0


@pytest.mark.parametrize("layer", range(LAYERS))
def test_a_piece_that_is_lost_in_any_layer_is_computed_again(lab: Lab, layer: int) -> None:
    """Before the last cut nothing can be used, after it what comes before the piece."""
    turn = Turn(lab)
    request = turn.begin()
    read = lab.store.reads[-1]
    lab.store.faults.lost_slices = {(read.keys[-1], layer)}
    completion = turn.finish()
    answer, _ = lab.by_hand.turn(turn.prompt, 4)
    assert list(completion.generated_ids) == answer
    assert completion.restore.restored_tokens < len(request.token_ids)


def slow_of(lab: Lab) -> SlowStore:
    return SlowStore(lab, preload=Preload.LAYERS)


def test_a_silent_store_is_waited_for_as_the_stake_says(lab: Lab) -> None:
    slow = slow_of(lab)
    slow.restored(deliver=lambda: False)
    assert slow.talk.usable.token_count == 0
    assert 0 < slow.clock.now_s <= BLIND_SHARE * len(slow.talk.told.token_ids) * TOKEN_S * 1.001


def test_a_store_that_falls_silent_costs_the_stake(lab: Lab) -> None:
    """All of it, and not the part that is spent on a store that has brought nothing."""
    slow = slow_of(lab)
    reads = lab.store.reads
    before = len(reads)

    def deliver() -> bool:
        # However late it is asked for: before that no time of the clock goes by.
        for read in reads[before : before + 1]:
            read.deliver(layer=0)
        return False

    slow.restored(deliver=deliver)
    assert slow.talk.usable.token_count == 0
    limit_s = STAKE_SHARE * len(slow.talk.told.token_ids) * TOKEN_S
    assert 0.9 * limit_s < slow.clock.now_s <= 1.1 * limit_s


def begun(lab: Lab, options: RestoreOptions, *, new_tokens: int) -> Restoration:
    with MemoryClient(lab.store) as client:
        talks = ConversationStore(client, lab.state_format, lab.model, options=options)
        talk = talks.open(NAME)
        cache = lab.model.make_cache(2 * WINDOW)
        restoration = talk.begin(talk.told.cuts, cache=cache, first_slot=0, new_tokens=new_tokens)
        assert restoration is not None
        restoration.close()
        talks.close()
    return restoration


def rates_of(read_share: float) -> LayerRates:
    """Reads that take this share of computing a history."""
    read_s = read_share * WINDOW * SLOW.token_s / LAYERS
    costs = LayerCosts(
        io_hidden_s=read_s, io_kv_s=read_s, compute_s=read_s, project_s=1e-6, load_s=1e-6
    )
    return LayerRates(costs, WINDOW, hidden_bytes=1, kv_bytes=1)


@pytest.mark.parametrize(
    ("preload", "read_share", "new_tokens", "kind"),
    [
        (Preload.AUTO, 0.2, 20, LayerwiseRestoration),
        (Preload.AUTO, 0.001, 20, PieceRestoration),
        (Preload.AUTO, 20.0, 20, PieceRestoration),
        (Preload.AUTO, 0.2, 1, LayerwiseRestoration),
        (Preload.AUTO, 0.9, 1, PieceRestoration),
        (Preload.LAYERS, 20.0, 1, LayerwiseRestoration),
        (Preload.SPANS, 0.2, 20, PieceRestoration),
    ],
)
def test_costs_choose_how_a_window_comes(
    lab: Lab, preload: Preload, read_share: float, new_tokens: int, kind: type[Restoration]
) -> None:
    options = RestoreOptions(preload=preload, compute=SLOW, window_rates=rates_of(read_share))
    assert type(begun(lab, options, new_tokens=new_tokens)) is kind


@pytest.mark.parametrize("missing", ["compute", "window_rates"])
def test_without_costs_a_window_comes_in_spans(lab: Lab, missing: str) -> None:
    options = RestoreOptions(compute=SLOW, window_rates=rates_of(0.2))
    less: dict[str, Any] = {missing: None}
    assert type(begun(lab, replace(options, **less), new_tokens=20)) is PieceRestoration


def test_the_buffer_is_as_large_as_the_costs_say(lab: Lab) -> None:
    options = RestoreOptions(compute=SLOW, window_rates=rates_of(0.5))
    restoration = begun(lab, options, new_tokens=10)
    assert isinstance(restoration, LayerwiseRestoration)
    window = len(lab.by_hand.llama.keys[0])
    load_s, prefill_s = 0.5 * window / LAYERS, 10 / LAYERS
    expected = math.ceil(LAYERS - (LAYERS - 1) * prefill_s / load_s)
    assert restoration._buffer_layers == expected > 1


@pytest.mark.parametrize("preload", [Preload.LAYERS, Preload.SPANS])
def test_windows_measure_what_the_next_ones_are_compared_by(
    make_lab: Callable[..., Lab], preload: Preload
) -> None:
    lab = make_lab(preload=preload)
    rates = rates_of(0.2)
    lab.options = replace(lab.options, window_rates=rates)
    before = rates.costs()
    for number in range(4):
        lab.turn(prompt_of(number, 12), 4)
    # Copying takes more than what was expected of it.
    assert rates.costs().load_s > before.load_s


def test_a_buffer_has_layers() -> None:
    with pytest.raises(ValueError, match="buffer_layers"):
        RestoreOptions(buffer_layers=0)
