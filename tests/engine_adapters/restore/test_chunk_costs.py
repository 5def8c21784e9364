import math
from dataclasses import replace

import pytest

from engine_adapters.restore import CostProfile, Source
from engine_adapters.restore.chunk_costs import ComputeCost, LoadCost
from engine_adapters.restore.least_squares import Curve

PROFILE = CostProfile(
    model="model",
    machine="machine",
    measured_at_s=1.0,
    hidden_bytes=100,
    kv_bytes=200,
    compute_token_s=1e-5,
    compute_square_s=1e-9,
    compute_constant_s=1e-3,
    project_token_s=2e-6,
    load_token_s=5e-7,
    read_bytes_per_s=1e6,
    read_latency_s=0.25,
)


def test_a_step_is_a_line_in_its_first_position() -> None:
    cost = ComputeCost(step_s=1.0, token_s=0.1, attention_s=0.01)
    steps = [cost.compute_s(first, first + 10, 10) for first in (0, 100, 200)]
    assert steps[0] == pytest.approx(1 + 10 * (0.1 + 0.01 * 5))
    assert steps[2] - steps[1] == pytest.approx(steps[1] - steps[0])
    assert steps[1] - steps[0] == pytest.approx(10 * 0.01 * 100)


def test_many_tokens_take_several_steps_and_no_tokens_none() -> None:
    cost = ComputeCost(step_s=1.0, token_s=0.1, attention_s=0.0)
    assert cost.compute_s(5, 25, 10) == pytest.approx(2 + 2)
    assert cost.compute_s(5, 26, 10) == pytest.approx(3 + 2.1)
    assert cost.compute_s(5, 5, 10) == 0
    assert cost.scaled(3).compute_s(5, 25, 10) == pytest.approx(12)


def test_the_profile_of_a_layer_gives_the_costs_of_the_model() -> None:
    compute = ComputeCost.of_profile(PROFILE, 4)
    alone_s = 1e-3 + 50 * 1e-5 + 50**2 * 1e-9
    assert compute.compute_s(0, 50, 50) == pytest.approx(4 * alone_s)
    hidden, kv = (
        LoadCost.of_profile(PROFILE, source, layer_count=4, chunk_tokens=16)
        for source in (Source.HIDDEN, Source.KV)
    )
    assert hidden == LoadCost(chunk_s=0.0064, latency_s=0.25, project_s=8e-6)
    assert kv == LoadCost(chunk_s=0.0128, latency_s=0.25, project_s=2e-6)


def test_the_curve_of_a_layer_gives_the_costs_of_the_model() -> None:
    cost = ComputeCost.of_curve(Curve(constant=1e-3, linear=1e-5, square=1e-9), 4)
    assert cost.compute_s(0, 50, 50) == pytest.approx(4 * (1e-3 + 50 * 1e-5 + 50**2 * 1e-9))


def test_a_chunk_is_loaded_as_fast_as_the_slower_of_reading_and_decoding() -> None:
    profile = replace(PROFILE, codec="zstd", decode_hidden_token_s=3e-4, decode_kv_token_s=1e-4)
    hidden, kv, raw = (
        LoadCost.of_profile(profile, source, layer_count=4, chunk_tokens=16, codec=codec)
        for source, codec in ((Source.HIDDEN, "zstd"), (Source.KV, "zstd"), (Source.HIDDEN, "raw"))
    )
    assert hidden.chunk_s == pytest.approx(4 * 16 * 3e-4)
    assert replace(hidden, chunk_s=raw.chunk_s) == raw
    assert raw == LoadCost.of_profile(PROFILE, Source.HIDDEN, layer_count=4, chunk_tokens=16)
    assert kv == LoadCost.of_profile(PROFILE, Source.KV, layer_count=4, chunk_tokens=16)


def test_bytes_and_what_each_chunk_takes_besides() -> None:
    assert LoadCost.of_bytes(500, bytes_per_s=1000, issue_s=0.1).chunk_s == pytest.approx(0.6)
    decoded = [
        LoadCost.of_bytes(500, bytes_per_s=1000, issue_s=0.1, decode_s=decode_s).chunk_s
        for decode_s in (0.59, 0.7)
    ]
    assert decoded == [pytest.approx(0.6), 0.7]


def test_costs_are_finite_and_something() -> None:
    with pytest.raises(ValueError, match="token_s is -1"):
        ComputeCost(step_s=0, token_s=-1, attention_s=0)
    with pytest.raises(ValueError, match="attention_s is inf"):
        ComputeCost(step_s=0, token_s=1, attention_s=math.inf)
    with pytest.raises(ValueError, match="computing tokens takes some time"):
        ComputeCost(step_s=0, token_s=0, attention_s=1)
    with pytest.raises(ValueError, match="latency_s is nan"):
        LoadCost(chunk_s=1, latency_s=math.nan)
    with pytest.raises(ValueError, match="loading a chunk takes some time"):
        LoadCost(chunk_s=0)
