"""The formulas of HCache, section 4.1.2, against what the paper prints and minimises."""

import math
from dataclasses import replace

import pytest
from hypothesis import given

from engine_adapters.restore import LayerCosts, Source
from engine_adapters.restore.partition import hcache_partition, hybrid_partition
from tests.engine_adapters.restore.drawn_costs import any_costs, layer_counts


def costs(io: float, compute: float, project: float) -> LayerCosts:
    return LayerCosts(io_hidden_s=io, io_kv_s=2 * io, compute_s=compute, project_s=project)


@pytest.mark.parametrize(
    ("layer_count", "given_costs", "hidden", "other"),
    [
        # 26.2 GB/s where 24 and 21 GB/s balance (sections 6.1.3 and 6.2.2): table 3.
        (32, costs(1.0, 6.6, 26.2 / 24), 31, Source.KV),
        (40, costs(1.0, 7.6, 26.2 / 21), 36, Source.KV),
        # Section 6.3.2: 31 of 40 layers, 794 of 1024 tokens on one SSD of 6.9 GB/s.
        (40, costs(1.0, 2.309, 6.9 / 21), 31, Source.COMPUTE),
        (1024, costs(1.0, 2.309, 6.9 / 21), 794, Source.COMPUTE),
        # 40 H + 8 RE: five sixths of the layers.
        (48, costs(1.0, 2.5, 0.5), 40, Source.COMPUTE),
        # Both channels alike: nothing to complement.
        (32, costs(1.0, 6.0, 1.0), 32, Source.COMPUTE),
    ],
)
def test_the_papers_worked_numbers(
    layer_count: int, given_costs: LayerCosts, hidden: int, other: Source
) -> None:
    partition = hcache_partition(given_costs, layer_count)
    assert (partition.main_count, partition.other) == (hidden, other)
    assert partition.other_count == layer_count - hidden


@pytest.mark.parametrize(
    ("given_costs", "other"),
    [
        (LayerCosts(io_hidden_s=2.0, io_kv_s=3.0, compute_s=9.0, project_s=5.0), Source.KV),
        (LayerCosts(io_hidden_s=5.0, io_kv_s=7.0, compute_s=9.0, project_s=2.0), Source.COMPUTE),
    ],
)
def test_the_formulas_as_printed(given_costs: LayerCosts, other: Source) -> None:
    io_h, io_kv = given_costs.io_hidden_s, given_costs.io_kv_s
    c_token, c_h = given_costs.compute_s, given_costs.project_s
    for layer_count in range(1, 100):
        printed = (
            math.ceil(layer_count * io_kv / (io_kv + c_h - io_h))
            if c_h > io_h
            else math.ceil(layer_count * c_token / (c_token + io_h - c_h))
        )
        partition = hcache_partition(given_costs, layer_count)
        assert (partition.main_count, partition.other) == (printed, other)


@given(any_costs(), layer_counts)
def test_hidden_layers_are_the_least_for_which_the_slower_channel_stays_the_slower(
    drawn: LayerCosts, layer_count: int
) -> None:
    """Rounding up means: with one layer fewer, the complement's channel would be the slower."""
    partition = hcache_partition(drawn, layer_count)
    assert 0 <= partition.main_count <= layer_count

    def slack_s(hidden: int) -> float:
        other = layer_count - hidden
        if partition.other is Source.KV:
            reads_s = hidden * drawn.io_hidden_s + other * drawn.io_kv_s
            return hidden * drawn.project_s + other * drawn.load_s - reads_s
        computed_s = hidden * drawn.project_s + other * drawn.compute_s
        return hidden * drawn.io_hidden_s - computed_s

    noise_s = (
        1e-9 * layer_count * max(drawn.io_kv_s, drawn.compute_s, drawn.project_s, drawn.io_hidden_s)
    )
    assert slack_s(partition.main_count) >= -noise_s
    if partition.main_count:
        assert slack_s(partition.main_count - 1) <= noise_s


@given(any_costs(), layer_counts)
def test_the_hybrid_balances_reads_and_computation(drawn: LayerCosts, layer_count: int) -> None:
    partition = hybrid_partition(drawn, layer_count)
    assert partition.other is Source.COMPUTE
    loaded, computed = partition.main_count, partition.other_count
    assert loaded + computed == layer_count
    if drawn.load_s >= drawn.compute_s:
        assert loaded == 0
        return
    noise_s = 1e-9 * layer_count * max(drawn.io_kv_s, drawn.compute_s)
    channel_s = drawn.io_kv_s - drawn.load_s
    if channel_s <= 0:
        assert computed == 0
        return
    assert loaded * channel_s >= computed * drawn.compute_s - noise_s
    assert (loaded - 1) * channel_s <= (computed + 1) * drawn.compute_s + noise_s


def test_loading_that_costs_time_takes_fewer_layers_from_keys_and_values() -> None:
    """C_H is 3, IO_H 1, IO_KV 2: of 8 layers 4 without, and of 7 layers 3 with a load of 1/2."""
    free = costs(1.0, 60.0, 3.0)
    assert hcache_partition(free, 8).main_count == 4
    assert hcache_partition(replace(free, load_s=0.5), 7).main_count == 3
    # 3 x 3 + 4 x 0.5 is 3 x 1 + 4 x 2: both channels take as long.
    assert hybrid_partition(replace(costs(1.0, 6.0, 1.0), load_s=0.5), 10).main_count == 8


def test_where_loading_keeps_the_compute_side_as_busy_as_reading_one_source_is_best() -> None:
    slow = costs(1.0, 60.0, 9.0)
    assert hcache_partition(replace(slow, load_s=2.0), 8).main_count == 0
    assert hcache_partition(replace(slow, load_s=8.0), 8).main_count == 0
    assert hcache_partition(replace(slow, load_s=9.0), 8).main_count == 8
    assert hybrid_partition(replace(slow, load_s=2.0), 8).main_count == 8
    assert hybrid_partition(replace(slow, load_s=60.0), 8).main_count == 0


def test_a_whole_number_is_not_rounded_up_because_of_floats() -> None:
    """48 x 7.4 / (7.4 + 2.3 - 0.1) is 37, in floats a little more."""
    assert math.ceil(48 * 7.4 / (7.4 + 2.3 - 0.1)) == 38
    assert hcache_partition(costs(2.3, 7.4, 0.1), 48).main_count == 37
    assert math.ceil(40 * (6.9 / (6.9 + (2.4 - 0.1)))) == 31
    assert hcache_partition(costs(2.4, 6.9, 0.1), 40).main_count == 30
