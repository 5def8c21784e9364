"""A store that is slow or silent costs a share of computing everything, and no more."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from engine_adapters.restore import ComputeCost, LayerCosts, LayerRates, LayerSchedule, Source
from engine_adapters.restore.stake import BLIND_SHARE
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client.testing import Delivery, MemoryClient
from tests.engine_adapters.runner.memory import (
    Clock,
    check_released,
    let_waits_take_time,
    make_store,
)
from tests.engine_adapters.runner.restored import restored
from tests.engine_adapters.runner.step_log import StepLog
from tests.support.waiting import wait_until

MakeTokens = Callable[[int, int], list[int]]
CHUNK_TOKENS = 8
CHUNKS = 32
HISTORY_TOKENS = CHUNKS * CHUNK_TOKENS
FIRST_SPAN_TOKENS = 2 * CHUNK_TOKENS
STEP_TOKENS = 16
NEW_TOKENS = 3
STEPS_MAX = 20_000
"""Many more than any restoration takes; time passes in those that wait."""
COMPUTE = ComputeCost(step_s=0.0, token_s=1.0, attention_s=0.0)
SCHEDULES = {
    "kv": LayerSchedule.of((Source.KV, 3)),
    "hidden": LayerSchedule.of((Source.HIDDEN, 3)),
    "hcache": LayerSchedule.of((Source.COMPUTE, 1), (Source.HIDDEN, 1), (Source.KV, 1)),
}


class FixedRates(LayerRates):
    """By a clock that stands still nothing takes time: costs stay as they were expected."""

    __slots__ = ()

    def recomputed(self, duration_s: float, *, layer_tokens: int) -> None:
        assert duration_s == 0 < layer_tokens

    def taken(self, source: Source, duration_s: float, *, layer_tokens: int) -> None:
        assert source is Source.HIDDEN
        assert duration_s == 0 < layer_tokens

    def read(self, duration_s: float, *, byte_count: int) -> None:
        assert duration_s == 0 < byte_count


class SlowLab:
    """One stored history in a store that brings nothing unless a test lets it.

    Waiting for states on the engine's thread takes the time of the clock that it was given.
    """

    def __init__(self, model: Model, prompt: list[int], mode: str) -> None:
        self.clock = Clock()
        self.log = StepLog()
        self._model = model
        self._prompt = prompt
        self._format = StateFormat.of_model(
            model, "slow", schedule=SCHEDULES[mode], chunk_tokens=CHUNK_TOKENS
        )
        self.client = MemoryClient(make_store())
        saver = StateSaver(self.client, self._format)
        engine = Engine(model, cache_tokens=512, requests_max=1, sink=saver)
        engine.add_request(prompt, new_tokens_max=NEW_TOKENS, stop_token_ids=())
        (self.plain,) = engine.run()
        saver.close()
        self.client.store.faults.delivery = Delivery.HELD
        let_waits_take_time(self.client.store, self.clock)

    def restored(
        self,
        *,
        deliver: Callable[["SlowLab"], bool] = lambda _: False,
        layer_rates: LayerRates | None = None,
    ) -> Completion:
        """Steps until it is over; where ``deliver`` says so all that was asked for arrives."""
        restorer = Restorer(
            self.client,
            self._format,
            self._model,
            RestoreOptions(
                step_tokens=STEP_TOKENS,
                compute=COMPUTE,
                least_wait_s=0.0,
                layer_rates=layer_rates,
                clock=self.clock,
            ),
        )
        engine = Engine(
            self._model,
            cache_tokens=512,
            token_budget=STEP_TOKENS,
            requests_max=1,
            sink=self.log,
            restorer=restorer,
            clock=self.clock,
        )
        engine.add_request(self._prompt, new_tokens_max=NEW_TOKENS, stop_token_ids=())
        completions: list[Completion] = []
        for _ in range(STEPS_MAX):
            if engine.is_idle:
                break
            if deliver(self):
                self.client.store.deliver()
            completions += engine.step()
        assert engine.is_idle, "it waits on although no time passes"
        restorer.close()
        check_released(self.client.store)
        return completions[0]

    @property
    def computed_tokens(self) -> int:
        return sum(count for step in self.log.steps for _, count in step)


@pytest.fixture(params=SCHEDULES)
def lab(request: pytest.FixtureRequest, model: Model, make_tokens: MakeTokens) -> SlowLab:
    return SlowLab(model, make_tokens(HISTORY_TOKENS + 1, 1), request.param)


def test_a_silent_store_was_waited_for_thirty_seconds(lab: SlowLab) -> None:
    completion = lab.restored()
    assert completion.token_ids == lab.plain.token_ids
    assert completion.restore.restored_tokens == 0
    assert 0 < lab.clock.now_s <= BLIND_SHARE * (HISTORY_TOKENS + 1) * 1.001
    assert completion.restore.waited_s == pytest.approx(lab.clock.now_s)


def test_what_comes_after_a_silence_is_restored_and_only_the_rest_computed(lab: SlowLab) -> None:
    def comes(lab: SlowLab) -> bool:
        """From when the engine has left the first span behind, and the second is asked for."""
        if lab.computed_tokens < FIRST_SPAN_TOKENS + STEP_TOKENS:
            return False
        wait_until(lambda: len(lab.client.store.reads) > 1)
        return True

    completion = lab.restored(deliver=comes)
    assert completion.token_ids == lab.plain.token_ids
    restored_tokens = completion.restore.restored_tokens
    assert 0 < restored_tokens <= HISTORY_TOKENS - FIRST_SPAN_TOKENS
    assert completion.computed_tokens == HISTORY_TOKENS + NEW_TOKENS - restored_tokens
    # Nothing of what is stored already is saved again.
    assert lab.log.announced == {0: HISTORY_TOKENS}


def test_a_store_that_keeps_up_brings_everything(lab: SlowLab) -> None:
    completion = lab.restored(deliver=lambda _: True)
    assert completion.token_ids == lab.plain.token_ids
    assert completion.restore.restored_tokens == HISTORY_TOKENS


def test_what_restores_at_once_ends_where_computing_would_begin(lab: SlowLab) -> None:
    restorer = Restorer(
        lab.client,
        lab._format,
        lab._model,
        RestoreOptions(compute=COMPUTE, least_wait_s=0.0, clock=lab.clock),
    )
    cache = lab._model.make_cache(512)
    report = restored(restorer, lab._prompt, cache=cache, first_slot=0)
    assert report.restored_tokens == 0
    assert lab.clock.now_s <= BLIND_SHARE * (HISTORY_TOKENS + 1) * 1.001
    check_released(lab.client.store)


class TimedModel:
    """Computing takes time of a clock: a token over all layers one second."""

    def __init__(self, lab: SlowLab, monkeypatch: pytest.MonkeyPatch) -> None:
        forward, layers = lab._model.forward, lab._model.config.layer_count

        def compute(token_ids: list[int], *arguments: Any, **options: Any) -> Any:
            stop = options.get("layer_stop")
            lab.clock.advance(len(token_ids) * (layers if stop is None else stop) / layers)
            return forward(token_ids, *arguments, **options)

        monkeypatch.setattr(lab._model, "forward", compute)


@pytest.mark.parametrize("silent_from", [0, 1, 3])
def test_layers_were_recomputed_in_vain_when_those_behind_them_never_came(
    silent_from: int,
    model: Model,
    make_tokens: MakeTokens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of three layers are recomputed, and the store brings some spans and then nothing."""
    lab = SlowLab(model, make_tokens(HISTORY_TOKENS + 1, 1), "hidden")
    TimedModel(lab, monkeypatch)
    costs = LayerCosts(io_hidden_s=1e6, io_kv_s=1.0, compute_s=2.0, project_s=1e-6)
    rates = LayerRates(costs, HISTORY_TOKENS, hidden_bytes=1, kv_bytes=2)
    started_s = lab.clock.now_s
    completion = lab.restored(
        deliver=lambda lab: len(lab.client.store.reads) <= silent_from, layer_rates=rates
    )
    assert completion.token_ids == lab.plain.token_ids
    whole_s = HISTORY_TOKENS + NEW_TOKENS
    assert lab.clock.now_s - started_s <= 1.05 * whole_s


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_wait_for_more_layers_than_may_be_recomputed_in_vain_spun(
    is_lost: bool, model: Model, make_tokens: MakeTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: with the last layer there, or lost, the wait for the others returned at once."""
    lab = SlowLab(model, make_tokens(HISTORY_TOKENS + 1, 1), "hidden")
    costs = LayerCosts(io_hidden_s=1.9, io_kv_s=4.0, compute_s=2.0, project_s=1e-6)
    rates = LayerRates(costs, HISTORY_TOKENS, hidden_bytes=1, kv_bytes=2)
    may_read, read_chunks = threading.Event(), lab.client.read

    def read_when_told(*arguments: Any, **options: Any) -> Any:
        may_read.wait()
        return read_chunks(*arguments, **options)

    monkeypatch.setattr(lab.client, "read", read_when_told)
    restorer = Restorer(
        lab.client,
        lab._format,
        model,
        RestoreOptions(
            step_tokens=STEP_TOKENS,
            compute=COMPUTE,
            least_wait_s=0.0,
            layer_rates=rates,
            clock=lab.clock,
        ),
    )
    restoration = restorer.begin(lab._prompt, cache=model.make_cache(512), first_slot=0)
    assert restoration is not None
    assert restoration.advance(STEP_TOKENS) == 0
    assert restoration.state.is_waiting
    # Less is left then than recomputing a layer of the first span costs.
    lab.clock.advance(0.95 * BLIND_SHARE * (HISTORY_TOKENS + 1))
    may_read.set()
    wait_until(lambda: restoration.advance(STEP_TOKENS) == 0 and bool(lab.client.store.reads))
    restoration.advance(STEP_TOKENS)
    assert restoration.state.is_waiting
    read = lab.client.store.reads[0]
    assert (read.first_layer, read.layer_count) == (1, 2)
    if is_lost:
        lab.client.store.faults.lost_slices = {(key, 2) for key in read.keys}
    assert read.deliver(layer=1) > 0
    restoration.advance(STEP_TOKENS)
    assert restoration.state.is_waiting
    before_s = lab.clock.now_s
    restoration.wait(60.0)
    assert lab.clock.now_s > before_s
    restoration.close()
    restorer.close()
    check_released(lab.client.store)


@pytest.mark.parametrize("first_layer", [0, 1, 2])
def test_layers_that_are_stored_were_read_though_computing_them_is_faster(
    first_layer: int, model: Model, make_tokens: MakeTokens
) -> None:
    """How many are recomputed is decided when a span is asked for; tokens are the same."""
    lab = SlowLab(model, make_tokens(HISTORY_TOKENS + 1, 1), "hidden")
    lab.client.store.faults.delivery = Delivery.AT_ONCE
    costs = LayerCosts(
        io_hidden_s=(1e-6, 1.9, 1e6)[first_layer], io_kv_s=1.0, compute_s=2.0, project_s=1e-6
    )
    rates = FixedRates(costs, HISTORY_TOKENS, hidden_bytes=1, kv_bytes=2)
    stored = LayerSchedule.of((Source.HIDDEN, 3))
    assert rates.recomputed_layers(stored) == first_layer
    completion = lab.restored(deliver=lambda _: True, layer_rates=rates)
    assert completion.token_ids == lab.plain.token_ids
    assert completion.restore.restored_tokens == HISTORY_TOKENS
    assert completion.restore.recomputed_layer_tokens == first_layer * HISTORY_TOKENS
    reads = lab.client.store.reads
    assert {read.first_layer for read in reads} == {first_layer}
    assert {read.layer_count for read in reads} == {3 - first_layer}


def test_a_restoration_that_only_needed_computing_starved_behind_prefills(
    model: Model, make_tokens: MakeTokens
) -> None:
    """A prefill that comes while the store is silent does not hold it up for all its tokens."""
    lab = SlowLab(model, make_tokens(HISTORY_TOKENS + 1, 1), "kv")
    restorer = Restorer(
        lab.client,
        lab._format,
        model,
        RestoreOptions(step_tokens=STEP_TOKENS, compute=COMPUTE, least_wait_s=0.0, clock=lab.clock),
    )
    restoration = restorer.begin(lab._prompt, cache=model.make_cache(512), first_slot=0)
    assert restoration is not None
    # By a clock that stands still it waits for what it asked for.
    wait_until(lambda: restoration.advance(STEP_TOKENS) == 0 and bool(lab.client.store.reads))
    restoration.advance(STEP_TOKENS)
    assert restoration.state.is_loading
    while not restoration.advance(STEP_TOKENS):
        assert not restoration.state.is_over
        lab.clock.advance(0.25)
    assert not restoration.state.is_loading
    restoration.close()
    restorer.close()
    check_released(lab.client.store)
