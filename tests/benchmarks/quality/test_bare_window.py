"""Three ways to cut a history in the cache."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.quality.bare_window import BareWindow
from benchmarks.quality.way import Way
from engine_adapters.runner.model.model import Model

KEPT = (range(2), range(20, 40))
LEFT = 22


@pytest.fixture(scope="module")
def model(small_model: Path) -> Model:
    return Model.from_directory(small_model, dtype=torch.float32)


def cut_window(model: Model, way: Way) -> tuple[BareWindow, Tensor, Tensor]:
    """A window of 40 tokens after the cut; its keys and values before."""
    window = BareWindow(model, window_tokens=48)
    window.extend(range(100, 140))
    cache = window._cache
    before = cache.keys.clone(), cache.values.clone()
    window.cut(KEPT, way)
    assert window.count == LEFT
    return window, *before


def kept_slots() -> list[int]:
    return [position for positions in KEPT for position in positions]


def test_naive_cuts_leave_keys_as_they_were_rotated(model: Model) -> None:
    window, keys, values = cut_window(model, Way.NKVT)
    assert torch.equal(window._cache.keys[:, :LEFT], keys[:, kept_slots()])
    assert torch.equal(window._cache.values[:, :LEFT], values[:, kept_slots()])


def test_decoupled_cuts_rotate_keys_to_their_new_positions(model: Model) -> None:
    window, keys, values = cut_window(model, Way.AS)
    assert torch.equal(window._cache.values[:, :LEFT], values[:, kept_slots()])
    assert torch.equal(window._cache.keys[:, :2], keys[:, :2])
    # Layer 0 sees no history: its keys are what they would be without one.
    recomputed, _, _ = cut_window(model, Way.TT)
    assert torch.allclose(window._cache.keys[0, :LEFT], recomputed._cache.keys[0, :LEFT], atol=1e-5)


def test_token_cuts_compute_what_is_left_as_a_new_history(model: Model) -> None:
    window, _, _ = cut_window(model, Way.TT)
    fresh = BareWindow(model, window_tokens=48)
    fresh.extend([token for token in range(100, 140) if token - 100 in kept_slots()])
    assert torch.allclose(window._cache.keys[:, :LEFT], fresh._cache.keys[:, :LEFT])
    assert torch.allclose(window.extend([7, 8]), fresh.extend([7, 8]), atol=1e-5)


@pytest.mark.parametrize("way", [Way.AS, Way.NKVT])
def test_each_way_goes_on_otherwise(model: Model, way: Way) -> None:
    recomputed = cut_window(model, Way.TT)[0].extend([7, 8])
    assert not torch.allclose(cut_window(model, way)[0].extend([7, 8]), recomputed, atol=1e-3)


def test_a_cut_window_can_be_cut_again(model: Model) -> None:
    window, _, _ = cut_window(model, Way.AS)
    window.extend(range(10))
    window.cut((range(30, 32),), Way.TT)
    fresh = BareWindow(model, window_tokens=48)
    fresh.extend([8, 9])
    assert torch.allclose(window.extend([1]), fresh.extend([1]), atol=1e-5)
