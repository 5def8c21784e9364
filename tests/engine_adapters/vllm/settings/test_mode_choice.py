from dataclasses import replace
from unittest.mock import Mock

import pytest

from engine_adapters.restore import CostProfile, plan_cake
from engine_adapters.vllm.settings.mode_choice import ModeChoice
from engine_adapters.vllm.settings.options import RestoreMode

LAYERS, CHUNK, STEP = 4, 64, 256
COMPUTE_S = 1e-4
"""Of one token in one layer."""
KV_BYTES = 2048


def choice_of(
    *,
    load_times_compute: float,
    project_token_s: float = 1e-6,
    hidden_bytes: int = 1024,
    stores_hidden: bool = False,
) -> ModeChoice:
    """By costs of which loading a token takes so many times as long as computing it."""
    profile = CostProfile(
        model="m",
        machine="m",
        measured_at_s=1.0,
        hidden_bytes=hidden_bytes,
        kv_bytes=KV_BYTES,
        compute_token_s=COMPUTE_S,
        project_token_s=project_token_s,
        read_bytes_per_s=KV_BYTES / (load_times_compute * COMPUTE_S),
    )
    return ModeChoice(
        profile=profile,
        layer_count=LAYERS,
        chunk_tokens=CHUNK,
        step_tokens=STEP,
        stores_hidden=stores_hidden,
    )


def chosen(
    *, load_times_compute: float, prompt_tokens: int = 4097, chunks: int = 64
) -> RestoreMode:
    choice = choice_of(load_times_compute=load_times_compute)
    return choice.mode(prompt_tokens=prompt_tokens, stored_chunks=chunks)


def test_costs_of_steps_are_those_of_the_profile_or_unknown() -> None:
    choice = choice_of(load_times_compute=1.0)
    compute = choice.step_costs().compute
    assert compute is not None
    assert compute.token_s == pytest.approx(LAYERS * COMPUTE_S)
    assert choice.step_costs().step_tokens == STEP
    assert replace(choice, profile=None).step_costs().compute is None


def test_balanced_costs_do_both() -> None:
    assert chosen(load_times_compute=1.0) is RestoreMode.CAKE


def test_fast_loading_is_waited_for() -> None:
    assert chosen(load_times_compute=1 / 100) is RestoreMode.PREFIX


def test_hopeless_loading_is_left_out() -> None:
    assert chosen(load_times_compute=1e5) is RestoreMode.OFF


def test_nothing_stored_is_computed() -> None:
    assert chosen(load_times_compute=1.0, chunks=0) is RestoreMode.OFF


def test_last_token_is_not_planned_for() -> None:
    """More chunks may be stored than the prompt can use."""
    assert chosen(load_times_compute=1.0, prompt_tokens=4096, chunks=90) is RestoreMode.CAKE


def test_without_costs_both_are_tried() -> None:
    choice = ModeChoice(profile=None, layer_count=LAYERS, chunk_tokens=CHUNK, step_tokens=STEP)
    assert choice.mode(prompt_tokens=STEP + 1, stored_chunks=1) is RestoreMode.CAKE
    assert not choice.prefers_hidden


def test_prompt_of_one_step_is_loaded_first() -> None:
    """All of it would be computed before anything could be jumped over."""
    choice = ModeChoice(profile=None, layer_count=LAYERS, chunk_tokens=CHUNK, step_tokens=STEP)
    assert choice.mode(prompt_tokens=STEP, stored_chunks=1) is RestoreMode.PREFIX


def test_hidden_states_without_costs_are_loaded_first() -> None:
    choice = ModeChoice(
        profile=None, layer_count=LAYERS, chunk_tokens=CHUNK, step_tokens=STEP, stores_hidden=True
    )
    assert choice.mode(prompt_tokens=100, stored_chunks=1) is RestoreMode.HCACHE


def test_cheap_projection_of_small_states_is_preferred() -> None:
    """Half the bytes, and nearly nothing to compute."""
    assert choice_of(load_times_compute=0.5).prefers_hidden


def test_dear_projection_is_not_preferred() -> None:
    assert not choice_of(load_times_compute=0.5, project_token_s=COMPUTE_S).prefers_hidden


def test_large_hidden_states_are_not_preferred() -> None:
    """Grouped heads: keys and values are smaller."""
    assert not choice_of(load_times_compute=0.5, hidden_bytes=4096).prefers_hidden


@pytest.mark.parametrize(
    ("load_times_compute", "chunks", "mode"),
    [
        (0.5, 10, RestoreMode.HCACHE),
        (100.0, 10, RestoreMode.OFF),
        (0.5, 0, RestoreMode.OFF),
    ],
)
def test_hidden_states_are_loaded_where_that_is_faster_than_computing(
    load_times_compute: float, chunks: int, mode: RestoreMode
) -> None:
    choice = choice_of(load_times_compute=load_times_compute, stores_hidden=True)
    assert choice.mode(prompt_tokens=4097, stored_chunks=chunks) is mode


def test_a_request_that_waits_for_blocks_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: in each step, which took 50 ms for 131,072 tokens, and all others waited for it."""
    planned = Mock(wraps=plan_cake)
    monkeypatch.setattr("engine_adapters.vllm.settings.mode_choice.plan_cake", planned)
    choice = choice_of(load_times_compute=1.25)
    modes = {choice.mode(prompt_tokens=4097, stored_chunks=64) for _ in range(3)}
    assert modes == {RestoreMode.CAKE}
    assert planned.call_count == 1
    choice.mode(prompt_tokens=4097, stored_chunks=63)
    assert planned.call_count == 2
