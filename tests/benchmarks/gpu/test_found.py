from dataclasses import replace

import pytest

from benchmarks.gpu.found import WAYS, Cell, are_equal, cell_seconds
from benchmarks.gpu.printed import cake_over_both, hcache_over_kv
from benchmarks.gpu.run import FIGURES, series_of
from engine_adapters.restore import LayerCosts, Mode

COSTS = LayerCosts(io_hidden_s=1.0, io_kv_s=2.0, compute_s=8.0, project_s=0.5)
SECONDS = {
    Mode.RECOMPUTE: 64.0,
    Mode.KV: 16.0,
    Mode.HIDDEN: 8.2,
    Mode.HCACHE: 8.0,
    Mode.CAKE: 13.2,
    Mode.AUTO: 8.0,
}


def cell(model: str = "llama_2_7b", rate: str = "4gb_s", token_count: int = 16384) -> Cell:
    return Cell(
        model=model,
        rate=rate,
        token_count=token_count,
        layer_count=8,
        costs=COSTS,
        ttft_s={way: (SECONDS[way], 2 * SECONDS[way], SECONDS[way]) for way in WAYS},
        restored_s={way: (SECONDS[way],) * 3 for way in WAYS},
        oracle_s=(12.0, 30.0, 12.0),
        equal=14,
        compared=15,
        cake_waited_s=(0.1,) * 3,
        cake_loaded_tokens=(4096.0,) * 3,
    )


def test_ratios_are_medians_of_rounds() -> None:
    found = cell()
    assert found.cake_vs_oracle == pytest.approx(1.1)
    assert found.faster(Mode.HCACHE, Mode.KV) == 2.0
    # All eight layers from hidden states read for 8 s; with one of them computed both take 8 s.
    assert found.bound_s == pytest.approx(8.0)
    assert found.hcache_vs_bound == pytest.approx(1.0)


def test_figures_count_the_worst_cell_and_grouped_heads_do_not_count_for_hcache() -> None:
    series = {one.key: one for one in series_of([cell(), cell(model="llama_3_8b")])}
    assert {key for key, one in series.items() if one.is_figure} <= set(FIGURES)
    assert len(series["gpu_hcache_vs_kv_x"].samples) == 1
    assert len(series["gpu_cake_vs_oracle_max"].samples) == 2
    assert series["gpu_tokens_equal"].value == pytest.approx(14 / 15)
    assert series_of([]) == []


def test_tokens_are_compared_up_to_the_first_that_rounding_decides() -> None:
    margins = [0.5, 0.1, 0.05, 0.5]
    assert are_equal((1, 2, 3, 4), (1, 2, 9, 9), margins, "bfloat16") is True
    assert are_equal((1, 9, 3, 4), (1, 2, 3, 4), margins, "bfloat16") is False
    assert are_equal((1, 2, 3, 4), (1, 2, 9, 9), margins, "float32") is False
    assert are_equal((1,), (9,), [0.01], "bfloat16") is None


def test_a_cell_of_which_no_token_was_compared_says_nothing_of_tokens() -> None:
    silent = replace(cell(), equal=0, compared=0)
    assert all(one.key != "gpu_tokens_equal" for one in series_of([silent]))
    series = {one.key: one for one in series_of([silent, cell()])}
    assert series["gpu_tokens_equal"].samples == (14 / 15,)


def test_a_cell_takes_as_long_as_its_slower_sides() -> None:
    """64 s of computing, 16 s of keys and values, thrice 8 s of hidden states, and Cake."""
    assert cell_seconds(COSTS, 8) == 64 + 16 + 3 * 8 + 16


def test_the_nearest_printed_figures_are_shown() -> None:
    assert hcache_over_kv(cell()) == "1.7-2.6"
    assert hcache_over_kv(cell(rate="dram")) == "1.33-1.81"
    assert hcache_over_kv(cell(model="llama_3_8b")) == "-"
    # Table 3 of Cake, H100 at 100 %: 32 Gbps are 4 GB/s, and 7 Gbps are nearest to 1 GB/s.
    assert cake_over_both(cell(), 4e9) == "2.4\\1.75 at 32 Gbps"
    assert cake_over_both(cell(), 1e9) == "7.13\\1.17 at 7 Gbps"
    assert cake_over_both(cell(token_count=1024), 4e9) == "-"
