"""How many layers are recomputed is decided when a history is restored."""

from dataclasses import replace

import pytest

from engine_adapters.restore import (
    LayerCosts,
    LayerRates,
    LayerSchedule,
    Mode,
    Source,
    best_bound_s,
    predict_s,
    schedule_for,
    storing_schedule,
    with_faster_reads,
)
from engine_adapters.restore.layer_rates import FASTER, LAYERS_REMEMBERED

LAYERS = 40
TOKENS = 2048
HIDDEN_BYTES, KV_BYTES = 2048, 4096
COSTS = LayerCosts(io_hidden_s=0.1, io_kv_s=0.2, compute_s=0.25, project_s=0.027, load_s=0.003)
"""Of the measured setting with a quarter of the balanced bandwidth."""


def rates_of(costs: LayerCosts) -> LayerRates:
    return LayerRates(costs, TOKENS, hidden_bytes=HIDDEN_BYTES, kv_bytes=KV_BYTES)


def stored_for(costs: LayerCosts, mode: Mode = Mode.HCACHE) -> LayerSchedule:
    planned = schedule_for(mode, costs, LAYERS)
    return storing_schedule(planned, schedule_for(mode, with_faster_reads(costs), LAYERS))


def with_recomputed(stored: LayerSchedule, count: int) -> LayerSchedule:
    return LayerSchedule((Source.COMPUTE,) * count + stored.sources[count:])


@pytest.mark.parametrize("slower", [0.7, 0.8, 1.0, 1.2, 1.34])
@pytest.mark.parametrize("faster", [0.5, 0.8, 1.0, 1.1])
def test_a_schedule_was_stale_when_the_machine_was_slower_than_when_it_was_stored(
    slower: float, faster: float
) -> None:
    """What restorations measured moves the split: within a twentieth of the bound of then."""
    stored = stored_for(COSTS)
    rates = rates_of(COSTS)
    real = LayerCosts(
        io_hidden_s=COSTS.io_hidden_s / faster,
        io_kv_s=COSTS.io_kv_s / faster,
        compute_s=COSTS.compute_s * slower,
        project_s=COSTS.project_s * slower,
        load_s=COSTS.load_s * slower,
    )
    for _ in range(3):
        count = rates.recomputed_layers(stored)
        loaded = LAYERS - count
        rates.recomputed(count * real.compute_s, layer_tokens=count * TOKENS)
        rates.taken(Source.HIDDEN, loaded * real.project_s, layer_tokens=loaded * TOKENS)
        rates.read(loaded * real.io_hidden_s, byte_count=loaded * TOKENS * HIDDEN_BYTES)
    measured = rates.costs()
    assert measured.compute_s == pytest.approx(real.compute_s, rel=0.1)
    assert measured.io_hidden_s == pytest.approx(real.io_hidden_s, rel=0.01)
    schedule = with_recomputed(stored, rates.recomputed_layers(stored))
    assert predict_s(schedule, real) <= 1.05 * best_bound_s(real, LAYERS)


def test_what_was_expected_counts_until_something_was_measured() -> None:
    rates = rates_of(COSTS)
    expected = rates.costs()
    assert expected.io_kv_s == pytest.approx(2 * expected.io_hidden_s)
    assert expected.compute_s == pytest.approx(COSTS.compute_s)
    assert expected.project_s == pytest.approx(COSTS.project_s)
    assert expected.load_s == pytest.approx(COSTS.load_s)
    stored = stored_for(COSTS)
    planned = schedule_for(Mode.HCACHE, COSTS, LAYERS)
    assert abs(rates.recomputed_layers(stored) - planned.count(Source.COMPUTE)) <= 1


def test_layers_that_are_not_stored_are_recomputed_whatever_it_costs() -> None:
    stored = LayerSchedule.of((Source.COMPUTE, 3), (Source.HIDDEN, LAYERS - 3))
    cheap_reads = replace(COSTS, io_hidden_s=1e-6, io_kv_s=2e-6)
    assert rates_of(cheap_reads).recomputed_layers(stored) == 3


def test_one_layer_is_loaded_at_least() -> None:
    dear_reads = replace(COSTS, io_hidden_s=1e6, io_kv_s=2e6)
    stored = LayerSchedule.of((Source.HIDDEN, LAYERS))
    assert rates_of(dear_reads).recomputed_layers(stored) == LAYERS - 1


def test_copied_layers_are_measured_too() -> None:
    rates = rates_of(COSTS)
    tokens = int(LAYERS_REMEMBERED) * TOKENS
    rates.taken(Source.KV, LAYERS_REMEMBERED * 0.5, layer_tokens=tokens)
    assert rates.costs().load_s == pytest.approx(0.5)


def test_a_layer_is_stored_unless_even_faster_reads_leave_it_to_be_recomputed() -> None:
    planned = schedule_for(Mode.HCACHE, COSTS, LAYERS)
    stored = stored_for(COSTS)
    assert planned.count(Source.COMPUTE) > stored.count(Source.COMPUTE) > 0
    faster = replace(COSTS, io_hidden_s=COSTS.io_hidden_s / FASTER, io_kv_s=COSTS.io_kv_s / FASTER)
    assert stored == schedule_for(Mode.HCACHE, faster, LAYERS)
    # A tenth more than what the plan alone would store.
    sizes = [each.token_bytes(hidden_bytes=2, kv_bytes=4) for each in (planned, stored)]
    assert sizes[0] < sizes[1] <= 1.13 * sizes[0]


@pytest.mark.parametrize("mode", [Mode.KV, Mode.RECOMPUTE])
def test_a_schedule_of_one_source_is_stored_as_it_is(mode: Mode) -> None:
    assert stored_for(COSTS, mode) == schedule_for(mode, COSTS, LAYERS)


def test_layers_of_a_hybrid_are_stored_as_keys_and_values() -> None:
    stored = stored_for(COSTS, Mode.NAIVE_HYBRID)
    assert stored.count(Source.HIDDEN) == 0
    planned = schedule_for(Mode.NAIVE_HYBRID, COSTS, LAYERS)
    assert stored.count(Source.KV) > planned.count(Source.KV)
