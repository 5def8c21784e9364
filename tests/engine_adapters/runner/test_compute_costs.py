"""What of a restoration is computed: which work is timed, and how it is counted."""

import itertools

import pytest
import torch
from torch import Tensor

from engine_adapters.restore import Sample
from engine_adapters.runner import compute_costs
from engine_adapters.runner.compute_costs import LAYERS_TIMED, ComputeTimer, Projection
from engine_adapters.runner.layer_loader import place_kv
from engine_adapters.runner.model import Model

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
    assert timer(model).recompute([9], step_tokens=4) == [Sample(9, 1 / LAYERS_TIMED)]


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
