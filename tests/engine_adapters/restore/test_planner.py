import pytest
from hypothesis import example, given

from engine_adapters.restore import (
    LAYER_MODES,
    LayerCosts,
    LayerSchedule,
    Mode,
    Source,
    best_bound_s,
    best_schedule,
    hcache_schedule,
    predict_s,
    schedule_for,
)
from tests.engine_adapters.restore.drawn_costs import any_costs, layer_counts, mha_costs

H, KV, RE = Source.HIDDEN, Source.KV, Source.COMPUTE
SINGLE = {Mode.RECOMPUTE: RE, Mode.KV: KV, Mode.HIDDEN: H}
NOISE = 1 + 1e-9


def predicted_s(mode: Mode, costs: LayerCosts, layer_count: int) -> float:
    return predict_s(schedule_for(mode, costs, layer_count), costs)


@pytest.mark.parametrize("mode", SINGLE)
def test_single_modes_use_one_source(mode: Mode) -> None:
    costs = LayerCosts(io_hidden_s=1.0, io_kv_s=2.0, compute_s=6.0, project_s=1.0)
    assert schedule_for(mode, costs, 5) == LayerSchedule.of((SINGLE[mode], 5))


def test_compute_rich_computes_the_first_layers_and_io_rich_loads_the_last() -> None:
    compute_rich = LayerCosts(io_hidden_s=1.0, io_kv_s=2.0, compute_s=2.5, project_s=0.5)
    io_rich = LayerCosts(io_hidden_s=1.0, io_kv_s=2.0, compute_s=12.0, project_s=2.0)
    assert schedule_for(Mode.HCACHE, compute_rich, 48).sources == (RE,) * 8 + (H,) * 40
    assert schedule_for(Mode.HCACHE, io_rich, 48).sources == (H,) * 32 + (KV,) * 16
    assert schedule_for(Mode.NAIVE_HYBRID, compute_rich, 9).sources == (RE,) * 4 + (KV,) * 5


def test_hidden_states_that_are_larger_than_kv_are_not_used() -> None:
    """Grouped heads: a quarter as many keys and values as the hidden size, so half as large."""
    costs = LayerCosts(io_hidden_s=2.0, io_kv_s=1.0, compute_s=50.0, project_s=1.0)
    assert schedule_for(Mode.HCACHE, costs, 32) == LayerSchedule.of((KV, 32))
    assert schedule_for(Mode.AUTO, costs, 32) == LayerSchedule.of((KV, 32))
    assert hcache_schedule(costs, 32).count(H) == 32


@given(any_costs(), layer_counts)
def test_auto_is_never_slower_than_any_other_mode(costs: LayerCosts, layer_count: int) -> None:
    auto_s = predicted_s(Mode.AUTO, costs, layer_count)
    for mode in LAYER_MODES:
        assert auto_s <= predicted_s(mode, costs, layer_count) * NOISE, mode
    assert auto_s <= predict_s(hcache_schedule(costs, layer_count), costs) * NOISE


@given(any_costs(), layer_counts)
def test_auto_uses_no_hidden_states_where_loading_is_as_fast(
    costs: LayerCosts, layer_count: int
) -> None:
    if costs.io_hidden_s >= costs.io_kv_s:
        assert best_schedule(costs, layer_count).count(H) == 0


@given(any_costs(), layer_counts)
def test_the_formula_is_never_slower_than_hidden_states_alone(
    costs: LayerCosts, layer_count: int
) -> None:
    """But for loading the last layer, whose read is the last of all."""
    limit_s = predicted_s(Mode.HIDDEN, costs, layer_count) + costs.load_s
    assert predict_s(hcache_schedule(costs, layer_count), costs) <= limit_s * NOISE
    assert predicted_s(Mode.HCACHE, costs, layer_count) <= limit_s * NOISE


@given(any_costs(), layer_counts)
def test_the_hybrid_is_never_slower_than_loading(costs: LayerCosts, layer_count: int) -> None:
    loaded_s = predicted_s(Mode.KV, costs, layer_count)
    assert predicted_s(Mode.NAIVE_HYBRID, costs, layer_count) <= loaded_s * NOISE


@given(mha_costs(), layer_counts)
@example(LayerCosts(io_hidden_s=1.0, io_kv_s=2.0, compute_s=60.0, project_s=9.9), 2)
def test_the_formula_is_at_most_a_read_and_a_projection_above_the_least_bound(
    costs: LayerCosts, layer_count: int
) -> None:
    """Filling the pipeline costs one of them, rounding up the other: over many layers little."""
    hcache_s = predicted_s(Mode.HCACHE, costs, layer_count)
    least_s = best_bound_s(costs, layer_count)
    assert hcache_s <= (least_s + costs.io_hidden_s + costs.project_s) * NOISE


@pytest.mark.parametrize(
    ("project_s", "layer_count", "formula", "best"),
    [
        # One layer of hidden states is rounded up although two of KV take no longer.
        (9.9, 2, "1 H + 1 KV", "2 KV"),
        # The pipeline is filled by a read, for which the formula does not allow.
        (1.092, 32, "31 H + 1 KV", "30 H + 2 KV"),
        (0.5, 48, "45 H + 3 RE", "45 H + 3 RE"),
    ],
)
def test_where_the_formula_and_the_best_split_differ(
    project_s: float, layer_count: int, formula: str, best: str
) -> None:
    costs = LayerCosts(io_hidden_s=1.0, io_kv_s=2.0, compute_s=7.0, project_s=project_s)
    assert str(schedule_for(Mode.HCACHE, costs, layer_count)) == formula
    assert str(schedule_for(Mode.AUTO, costs, layer_count)) == best


def test_a_model_has_layers() -> None:
    costs = LayerCosts(io_hidden_s=1.0, io_kv_s=2.0, compute_s=6.0, project_s=1.0)
    with pytest.raises(ValueError, match="at least 1 layer, not 0"):
        schedule_for(Mode.KV, costs, 0)


def test_cake_divides_tokens_and_is_no_schedule_of_layers() -> None:
    costs = LayerCosts(io_hidden_s=1.0, io_kv_s=2.0, compute_s=3.0, project_s=0.5)
    with pytest.raises(ValueError, match="cake divides the tokens"):
        schedule_for(Mode.CAKE, costs, 8)
    assert set(Mode) - set(LAYER_MODES) == {Mode.CAKE}
