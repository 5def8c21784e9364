from typing import Any

import pytest

from benchmarks.conversations.timed_talk import ForgottenTalk, TimedTalk, layers_come
from engine_adapters.runner.engine.restoration import (
    PIECE_TOKENS,
    OpenLayers,
    RestorationState,
)
from tests.engine_adapters.runner.scripted_restorations import ScriptedRestoration


class Layers(ScriptedRestoration):
    """Each look brings a layer, up to the last one."""

    open_layers = 0
    layer_count = 6

    def advance(self, token_budget: int, *, piece_tokens: int = PIECE_TOKENS) -> int:
        self.open_layers += 1
        self.is_over = self.open_layers == self.layer_count
        return super().advance(token_budget, piece_tokens=piece_tokens)

    @property
    def state(self) -> RestorationState:
        return RestorationState(
            position=0,
            is_over=self.is_over,
            is_loading=not self.is_over,
            is_waiting=True,
            open_layers=OpenLayers(stop_token=9, layers=self.open_layers, buffer_layers=4),
        )


@pytest.mark.parametrize(("count", "layers"), [(1, 1), (3, 3), (None, 4), (6, 6), (99, 6)])
def test_a_turn_is_taken_up_when_its_layers_are_there(count: int | None, layers: int) -> None:
    restoration = Layers(step_tokens=0, is_loading=True)
    layers_come(count)(restoration)
    assert restoration.open_layers == layers


def test_time_runs_from_when_a_turn_is_taken_up() -> None:
    class Completed:
        ttft_s = 5.0

    talk = TimedTalk(ForgottenTalk([1, 2]))
    talk.added_s, talk.begun_s = 10.0, 12.0
    completed: Any = Completed()
    assert talk.ttft_s(completed) == 3.0
    nothing: Any = None
    assert talk.begin([], cache=nothing, first_slot=0, new_tokens=1) is None
    assert talk.begun_s > 12.0
