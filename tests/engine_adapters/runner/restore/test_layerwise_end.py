"""What a layer-wise restoration says once it is over."""

import math
from typing import Any
from unittest.mock import MagicMock

from engine_adapters.restore import ComputeCost, LoadShares, Rates
from engine_adapters.runner.restore.layered_history import Reached
from engine_adapters.runner.restore.layerwise_restoration import (
    LayerwiseRestoration,
    layerwise_limit,
)
from engine_adapters.runner.restore.restore_options import RestoreOptions


class Answered:
    """A history of which the store answers late, as ``LayeredHistory``."""

    def __init__(self) -> None:
        self.now = Reached()

    def reached(self, kept: int) -> Reached:
        del kept
        return self.now


def test_an_answer_after_the_end_moved_what_was_computed_already() -> None:
    """Bug: a turn began at token 0, and its end said that all cuts were made before it."""
    now_s, history = [0.0], Answered()
    reader: Any = MagicMock(is_ended=False, is_reading=False, stored=None)
    reader.read_bytes.return_value = (0, 0)
    reader.decode_s.return_value = 0.0
    restoration = LayerwiseRestoration(
        reader,
        history,  # type: ignore[arg-type]  # nothing is taken
        MagicMock(layout=MagicMock(chunk_tokens=16, layer_count=2)),
        MagicMock(is_on_cpu=True),
        None,
        RestoreOptions(timeout_s=1.0, clock=lambda: now_s[0]),
        share=LoadShares().begin(lambda: now_s[0]),
    )
    assert restoration.advance(64) == 0
    assert not restoration.state.is_over
    now_s[0] = 2.0
    restoration.advance(64)
    assert (restoration.state.is_over, restoration.state.position) == (True, 0)
    history.now = Reached(next_token=96, dropped_count=96, first_unstored=96)
    assert restoration.state.position == 0
    assert restoration.begin_step(1) == 0
    report = restoration.close()
    assert (report.restored_tokens, report.first_unstored) == (0, 0)


def test_the_next_restoration_hears_what_an_answer_took_and_not_after_one_was_given_up() -> None:
    now_s, rates = [0.0], Rates(None, token_budget=64)
    reader: Any = MagicMock(is_ended=False, is_reading=True, stored=None)
    reader.read_bytes.return_value = (0, 0)
    layout = MagicMock(chunk_tokens=16, layer_count=2)
    layout.chunk_bytes.return_value = 1000
    state_format: Any = MagicMock(layout=layout, codec=None)
    options = RestoreOptions(timeout_s=100.0, least_wait_s=0.0, clock=lambda: now_s[0])
    share = LoadShares().begin(options.clock)
    compute = ComputeCost(step_s=0.0, token_s=0.1, attention_s=0.0)
    restoration = LayerwiseRestoration(
        reader,
        Answered(),  # type: ignore[arg-type]  # nothing is taken
        state_format,
        MagicMock(is_on_cpu=True),
        layerwise_limit(state_format, 100, compute, rates, options, share),
        options,
        share=share,
    )
    restoration.advance(64)
    now_s[0] = 0.1
    reader.read_bytes.return_value = (0, 10)
    restoration.advance(64)
    assert rates.answers.wait_s(math.inf) == 0.2
    now_s[0] = 50.0
    restoration.advance(64)
    assert restoration.state.is_over
    assert rates.answers.wait_s(math.inf) == 0.0
