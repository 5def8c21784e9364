"""Layer by layer against span by span, as schedules that are played out step by step."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapters.restore import ComputeCost, LayerCosts, LayeredLoad, Source
from engine_adapters.restore.layered.preload import LEAST_GAIN

COSTS = LayerCosts(io_hidden_s=1.0, io_kv_s=2.0, compute_s=9.0, project_s=0.5, load_s=0.25)
COMPUTE = ComputeCost(step_s=1.0, token_s=0.5, attention_s=0.001)

seconds = st.floats(0.01, 10.0)
loads = st.builds(
    LayeredLoad,
    layer_count=st.integers(1, 40),
    load_s=seconds,
    take_s=st.floats(0.0, 10.0),
    prefill_s=seconds,
)


def gaps(load: LayeredLoad, begun_layers: int) -> float:
    """Seconds for which a prefill rests that begins when so many layers are in the cache.

    The computing side takes a layer as soon as it can, before it computes the one before it.
    """
    now_s = begun_layers * load.load_s + load.take_s
    rested_s = 0.0
    for layer in range(load.layer_count):
        if layer >= begun_layers:
            came_s = (layer + 1) * load.load_s
            rested_s += max(0.0, came_s - now_s)
            now_s = max(now_s, came_s) + load.take_s
        now_s += load.prefill_s
    return rested_s


@given(loads)
def test_a_prefill_that_begins_with_a_full_buffer_never_rests(load: LayeredLoad) -> None:
    assert 1 <= load.buffer_layers <= load.layer_count
    assert gaps(load, load.buffer_layers) <= 1e-6


@pytest.mark.parametrize(
    ("load_s", "prefill_s", "layers"),
    [(1.0, 1.0, 1), (1.0, 2.0, 1), (2.0, 1.0, 21), (4.0, 1.0, 31), (1e9, 1.0, 40)],
)
def test_a_buffer_is_as_large_as_the_paper_says_and_a_layer_at_most(
    load_s: float, prefill_s: float, layers: int
) -> None:
    load = LayeredLoad(layer_count=40, load_s=load_s, take_s=0.0, prefill_s=prefill_s)
    assert load.buffer_layers == layers
    paper = 40 * (load_s - prefill_s) / load_s
    assert max(0.0, paper) <= load.buffer_layers <= max(0.0, paper) + 2


def test_a_smaller_buffer_rests() -> None:
    load = LayeredLoad(layer_count=40, load_s=2.0, take_s=0.0, prefill_s=1.0)
    assert gaps(load, load.buffer_layers - 1) > 0


@given(loads)
def test_layers_are_never_slower_than_spans(load: LayeredLoad) -> None:
    assert load.layers_s <= load.spans_s + 1e-9


def test_times_of_both_ways() -> None:
    load = LayeredLoad(layer_count=3, load_s=2.0, take_s=0.5, prefill_s=1.0)
    # Read three layers, take the last one, compute three; or compute two meanwhile.
    assert load.spans_s == 3 * 2.0 + 0.5 + 3 * 1.0
    assert load.layers_s == 3 * 2.0 + 0.5 + 1.0


def test_what_gains_little_is_not_worth_it() -> None:
    few = LayeredLoad(layer_count=40, load_s=1.0, take_s=0.0, prefill_s=0.5 * LEAST_GAIN)
    many = LayeredLoad(layer_count=40, load_s=1.0, take_s=0.0, prefill_s=1.0)
    assert not few.is_better(recompute_s=math.inf)
    assert many.is_better(recompute_s=math.inf)


def test_a_store_slower_than_computing_is_not_followed_by_layers() -> None:
    load = LayeredLoad(layer_count=40, load_s=2.0, take_s=0.0, prefill_s=1.0)
    assert load.is_better(recompute_s=load.layers_s + 1)
    assert not load.is_better(recompute_s=load.layers_s)


def test_means_of_layers_of_both_kinds() -> None:
    load = LayeredLoad.of_costs(
        (Source.HIDDEN, Source.KV, Source.KV, Source.KV),
        COSTS,
        COMPUTE,
        history_tokens=100,
        new_tokens=20,
        step_tokens=10,
    )
    assert load.layer_count == 4
    assert load.load_s == (1.0 + 3 * 2.0) / 4
    assert load.take_s == (0.5 + 3 * 0.25) / 4
    assert load.prefill_s == pytest.approx((2 * 1.0 + 20 * (0.5 + 0.001 * 110)) / 4)


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_times_are_finite(value: float) -> None:
    with pytest.raises(ValueError, match="load_s is"):
        LayeredLoad(layer_count=1, load_s=value, take_s=0.0, prefill_s=1.0)


def test_a_model_has_layers() -> None:
    with pytest.raises(ValueError, match="at least 1 layer"):
        LayeredLoad(layer_count=0, load_s=1.0, take_s=0.0, prefill_s=1.0)
