from dataclasses import replace

import pytest

from engine_adapters.restore import CostProfile
from engine_adapters.vllm.settings.options import RestoreMode
from engine_adapters.vllm.settings.state_kinds import (
    StateShape,
    all_kv,
    engine_profile,
    hcache_kinds,
    state_layout,
    stored_kinds,
)
from kvstored_client import Rotary, Shard, StateKind

LAYERS = 8
MHA = StateShape(block_bytes=(32 * 2048,) * LAYERS, block_tokens=32, hidden_bytes=1024)
GQA = StateShape(block_bytes=(32 * 512,) * LAYERS, block_tokens=32, hidden_bytes=1024)


def profile(*, project_token_s: float, read_bytes_per_s: float) -> CostProfile:
    return CostProfile(
        model="m",
        machine="m",
        measured_at_s=1.0,
        hidden_bytes=1024,
        kv_bytes=2048,
        compute_token_s=1e-3,
        project_token_s=project_token_s,
        read_bytes_per_s=read_bytes_per_s,
    )


def test_smaller_state_without_a_profile() -> None:
    assert set(hcache_kinds(MHA, None)) == {StateKind.HIDDEN}
    assert set(hcache_kinds(GQA, None)) == {StateKind.KV}


def test_slow_projection_is_balanced_with_loading() -> None:
    kinds = hcache_kinds(MHA, profile(project_token_s=2e-6, read_bytes_per_s=1e9))
    assert set(kinds) == {StateKind.HIDDEN, StateKind.KV}


def test_layers_that_would_be_computed_are_stored_as_inputs() -> None:
    kinds = hcache_kinds(MHA, profile(project_token_s=1e-9, read_bytes_per_s=1e6))
    assert set(kinds) == {StateKind.HIDDEN}


@pytest.mark.parametrize("kind", [StateKind.HIDDEN, StateKind.KV])
def test_layout_holds_what_its_kinds_say(kind: StateKind) -> None:
    layout = state_layout(
        "print",
        dtype="float32",
        shape=MHA,
        kinds=(kind,) * LAYERS,
        chunk_tokens=64,
        shard=Shard(),
    )
    assert layout.slice_bytes(0) == 64 * (1024 if kind is StateKind.HIDDEN else 2048)
    assert layout.rotary is Rotary.ROTATED


def test_prefix_modes_store_blocks() -> None:
    assert all_kv(MHA) == (StateKind.KV,) * LAYERS


@pytest.mark.parametrize(
    ("dtype", "named"),
    [("fp8_e4m3", "fp8_e4m3"), ("turbo-quant_k8v4", "uint8_turbo_quant_k8v4")],
)
def test_a_cache_of_a_dtype_that_the_store_does_not_know_has_a_layout(
    dtype: str, named: str
) -> None:
    layout = state_layout(
        "print", dtype=dtype, shape=MHA, kinds=all_kv(MHA), chunk_tokens=64, shard=Shard()
    )
    assert layout.dtype == named


@pytest.mark.parametrize("rank_count", [1, 2, 4, 8])
def test_ranks_stored_whole_layer_inputs_each(rank_count: int) -> None:
    """Bug: 1, 2 and 4 times the bytes of keys and values with 2, 4 and 8 ranks."""
    costs = profile(project_token_s=1e-6, read_bytes_per_s=8e9)
    shape = replace(
        MHA,
        block_bytes=tuple(size // rank_count for size in MHA.block_bytes),
        hidden_bytes=MHA.hidden_bytes // rank_count,
    )
    engine = engine_profile(costs, shape, rank_count=rank_count)
    assert engine.kv_bytes == costs.kv_bytes
    assert engine.hidden_bytes == costs.hidden_bytes
    assert hcache_kinds(shape, engine) == hcache_kinds(MHA, costs)
    assert hcache_kinds(shape, None) == hcache_kinds(MHA, None)


def test_costs_know_heads_that_several_ranks_have() -> None:
    costs = profile(project_token_s=1e-6, read_bytes_per_s=8e9)
    assert engine_profile(costs, GQA, rank_count=8).kv_bytes == 8 * GQA.kv_bytes


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        (RestoreMode.PREFIX, StateKind.KV),
        (RestoreMode.CAKE, StateKind.KV),
        (RestoreMode.HCACHE, StateKind.KV),
        (RestoreMode.AUTO, StateKind.KV),
        (RestoreMode.PIC, StateKind.HIDDEN),
    ],
)
def test_only_layer_inputs_can_go_to_any_position(mode: RestoreMode, kind: StateKind) -> None:
    """Also where keys and values are smaller, as they are with grouped heads."""
    assert stored_kinds(mode, GQA, None) == (kind,) * LAYERS
    is_hidden = mode in (RestoreMode.HCACHE, RestoreMode.AUTO, RestoreMode.PIC)
    assert (StateKind.HIDDEN in stored_kinds(mode, MHA, None)) is is_hidden
