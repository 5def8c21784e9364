"""What a store that falls silent costs each way of loading."""

import json

import pytest

from benchmarks.restore.layers_silence import (
    FIGURES,
    STORES,
    ByHiddenLayers,
    ByLayers,
    ByTokens,
    SilentStore,
    over_computing,
    run,
)
from engine_adapters.restore.stake import STAKE_SHARE
from tests.benchmarks.committed import ROOT, simulation_settings

LOOK = 0.005


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.name)
def test_by_tokens_a_silence_costs_no_more_than_the_stake(store: SilentStore) -> None:
    assert over_computing(ByTokens(), store) <= 1 + STAKE_SHARE + LOOK


def test_by_layers_it_costs_what_came() -> None:
    assert over_computing(ByLayers(), SilentStore(2.0, 1.0)) == pytest.approx(0.5, abs=LOOK)
    silent = over_computing(ByLayers(), SilentStore(2.0, 0.9))
    assert 1.45 < silent <= 1.45 + STAKE_SHARE + LOOK


def test_a_cap_that_keeps_the_promise_keeps_no_gain() -> None:
    for pace in (5.0, 2.0):
        assert over_computing(ByLayers(cap_s=STAKE_SHARE), SilentStore(pace, 1.0)) > 1


def test_hidden_layers_that_came_need_not_be_computed() -> None:
    silent = over_computing(ByHiddenLayers(), SilentStore(2.0, 0.5))
    assert silent == pytest.approx(0.25 + STAKE_SHARE + 0.5, abs=0.02)


def test_committed_samples_are_those_of_the_code() -> None:
    series = run(simulation_settings())
    assert tuple(one.key for one in series if one.is_figure) == FIGURES
    committed = json.loads((ROOT / "docs/results/restore_layers_silence.json").read_text())
    for one in series:
        assert committed["samples"][one.key] == pytest.approx(list(one.samples))
