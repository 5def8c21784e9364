"""What of a restoration is computed: which work is timed, and how it is counted."""

import itertools

import pytest
import torch
from torch import Tensor

from engine_adapters.restore import Sample
from engine_adapters.runner.calibrate import compute_costs
from engine_adapters.runner.calibrate.compute_costs import (
    LAYERS_TIMED,
    ComputeTimer,
    Projection,
    rough_compute_cost,
)
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.layer_loader import place_kv
from tests.engine_adapters.runner.calibrate.moments import BadMoment

REPEATS = 3


def timer(model: Model) -> ComputeTimer:
    """With a clock by which all work takes one second."""
    ticks = itertools.count()
    return ComputeTimer(model, repeats=REPEATS, clock=lambda: float(next(ticks)))


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, Tensor, Tensor]]:
    """What was stored and the keys and values that came of it, for each load."""
    placed: list[tuple[Tensor, Tensor, Tensor]] = []

    def place(
        model: Model, stored: Tensor, *, keys: Tensor, values: Tensor, first_position: int
    ) -> None:
        place_kv(model, stored, keys=keys, values=values, first_position=first_position)
        placed.append((stored, keys.clone(), values.clone()))

    monkeypatch.setattr(compute_costs, "place_kv", place)
    return placed


def test_chunks_of_keys_and_values_are_copied_and_rotated(
    model: Model, placed: list[tuple[Tensor, Tensor, Tensor]]
) -> None:
    samples = timer(model).load([64, 21], chunk_tokens=8)
    assert samples == [Sample(16, 1.0), Sample(64, 1.0)]
    assert len(placed) == 2 * (1 + REPEATS)
    config = model.config
    for stored, keys, values in placed:
        assert tuple(stored.shape[1:]) == (2, 8, config.kv_head_count, config.head_dim)
        assert len(keys) == 8 * len(stored)
        assert torch.all(values == 1)
        assert torch.all(keys[0] == 1)
        assert torch.all((keys[1:] != 1).any(dim=-1))


def test_short_histories_are_one_chunk(
    model: Model, placed: list[tuple[Tensor, Tensor, Tensor]]
) -> None:
    assert timer(model).load([20, 45], chunk_tokens=64) == [Sample(20, 1.0), Sample(40, 1.0)]
    assert {len(stored) for stored, _, _ in placed} == {1, 2}


def test_the_others_are_of_one_layer_too(model: Model) -> None:
    assert timer(model).project([5, 9]) == [Sample(5, 1.0), Sample(9, 1.0)]
    seconds = 1 / LAYERS_TIMED
    assert timer(model).recompute([9], step_tokens=4) == [Sample(1, seconds), Sample(9, seconds)]


def test_each_layer_is_of_memory_that_was_not_touched_for_long(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bug: one layer's states stayed in the caches, and loading them seemed three times as fast."""
    layers = model.config.layer_count
    seen: list[tuple[int, int]] = []

    def project(layer: int, hidden: Tensor, **_: object) -> None:
        seen.append((layer, hidden.data_ptr()))

    monkeypatch.setattr(Model, "project", staticmethod(project))
    work = Projection(model, token_count_max=9)
    for _ in range(2 * layers):
        work(5)
    assert [layer for layer, _ in seen] == [*range(layers)] * 2
    assert len({place for _, place in seen}) == layers
    monkeypatch.setattr(compute_costs, "COLD_BYTES", 1)
    seen.clear()
    work = Projection(model, token_count_max=9)
    for _ in range(layers):
        work(5)
    assert len({place for _, place in seen}) == 1


def test_where_nobody_has_calibrated_two_short_histories_make_a_line(model: Model) -> None:
    ticks = itertools.count()
    cost = rough_compute_cost(model, step_tokens=16, clock=lambda: float(next(ticks)))
    # By this clock any history takes a second for the layers that are timed.
    layers = model.config.layer_count / LAYERS_TIMED
    assert cost.compute_s(0, 160, 160) == pytest.approx(layers, rel=0.6)
    assert cost.token_s > 0
    assert cost.attention_s == 0


def test_a_bad_moment_was_all_that_a_calibration_saw(model: Model) -> None:
    """Repetitions follow each other after a pause, all sizes in each; the result has the spread."""
    moment = BadMoment()
    timer = ComputeTimer(model, repeats=REPEATS, clock=moment.clock, pause=moment.pause)
    assert timer.spread == 1.0
    assert timer.project([5, 9]) == [Sample(5, 1.0), Sample(9, 1.0)]
    assert moment.pause_count == REPEATS - 1
    assert timer.spread == 4.0
