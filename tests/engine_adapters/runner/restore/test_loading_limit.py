"""What was measured of a restoration decides what it waits for."""

from typing import cast

import pytest

from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import ComputeCost, LayerSchedule, Rates, Source, Verdict
from engine_adapters.restore.stake import BLIND_SHARE
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.loading_limit import LoadingLimit
from engine_adapters.runner.states.state_format import StateFormat
from tests.engine_adapters.runner.memory import Clock

CHUNK_TOKENS = 8
CHUNKS = 32
COMPUTE = ComputeCost(step_s=0.0, token_s=1.0, attention_s=0.0)
BLIND_S = 1.1 * BLIND_SHARE * CHUNKS * CHUNK_TOKENS
"""More than a store is waited for that has brought nothing."""


class Arrived:
    """What a limit asks of a reader; a test says what has come."""

    def __init__(self) -> None:
        self.device_bytes = 0
        self.is_reading = True

    def read_bytes(self) -> tuple[int, int]:
        return self.device_bytes, 0


@pytest.mark.parametrize(
    ("came_chunks", "verdict"), [(1 / 8, Verdict.COMPUTE), (4.0, Verdict.WAIT)]
)
def test_what_loading_had_saved_was_spent_on_a_slow_store_that_had_not_asked_for_more(
    came_chunks: float, verdict: Verdict, model: Model
) -> None:
    """Bug: until the next span could be asked for everything was waited away, at any pace."""
    clock, source = Clock(), Arrived()
    layers = model.config.layer_count
    state_format = StateFormat.of_model(
        model,
        "limit",
        schedule=LayerSchedule.of((Source.HIDDEN, layers)),
        chunk_tokens=CHUNK_TOKENS,
    )
    limit = LoadingLimit(
        state_format,
        CHUNKS * CHUNK_TOKENS,
        compute=COMPUTE,
        rates=Rates(None, token_budget=16),
        least_wait_s=0.0,
        clock=clock,
    )
    limit.gain(0, 128)
    assert limit.opening(128) is Verdict.WAIT
    limit.end_look()
    clock.advance(10.0)
    source.device_bytes = int(came_chunks * state_format.layout.chunk_bytes())
    limit.begin_look(cast("SpanReader", source), was_waiting=True)
    assert limit.opening(128) is verdict


def test_restorations_that_ran_together_were_given_up_for_each_other(model: Model) -> None:
    """Bug: while one had the devices, the store was silent for the other, which was computed."""
    clock, rates = Clock(), Rates(None, token_budget=16)
    state_format = StateFormat.of_model(model, "limit", chunk_tokens=CHUNK_TOKENS)

    def begun() -> LoadingLimit:
        return LoadingLimit(
            state_format,
            CHUNKS * CHUNK_TOKENS,
            compute=COMPUTE,
            rates=rates,
            least_wait_s=0.0,
            clock=clock,
        )

    source = cast("SpanReader", Arrived())
    alone = begun()
    clock.advance(BLIND_S)
    alone.begin_look(source, was_waiting=True)
    assert alone.opening(0) is Verdict.COMPUTE
    alone.share.end()
    together = [begun(), begun()]
    clock.advance(BLIND_S)
    for limit in together:
        limit.begin_look(source, was_waiting=True)
        assert limit.opening(0) is Verdict.WAIT
    together[0].share.end()
    clock.advance(BLIND_S / 2)
    together[1].begin_look(source, was_waiting=True)
    assert together[1].opening(0) is Verdict.COMPUTE
