from engine_adapters.restore import CostProfile
from engine_adapters.vllm.mode_choice import ModeChoice
from engine_adapters.vllm.options import RestoreMode

LAYERS, CHUNK, STEP = 4, 64, 256
COMPUTE_S = 1e-4
"""Of one token in one layer."""
KV_BYTES = 2048


def chosen(
    *, load_times_compute: float, prompt_tokens: int = 4097, chunks: int = 64
) -> RestoreMode:
    """The mode when loading a token takes so many times as long as computing it."""
    profile = CostProfile(
        model="m",
        machine="m",
        measured_at_s=1.0,
        hidden_bytes=1024,
        kv_bytes=KV_BYTES,
        compute_token_s=COMPUTE_S,
        project_token_s=1e-6,
        read_bytes_per_s=KV_BYTES / (load_times_compute * COMPUTE_S),
    )
    choice = ModeChoice(profile=profile, layer_count=LAYERS, chunk_tokens=CHUNK, step_tokens=STEP)
    return choice.mode(prompt_tokens=prompt_tokens, stored_chunks=chunks)


def test_balanced_costs_do_both() -> None:
    assert chosen(load_times_compute=1.0) is RestoreMode.CAKE


def test_fast_loading_is_waited_for() -> None:
    assert chosen(load_times_compute=1 / 100) is RestoreMode.PREFIX


def test_hopeless_loading_is_left_out() -> None:
    assert chosen(load_times_compute=1000.0) is RestoreMode.OFF


def test_nothing_stored_is_computed() -> None:
    assert chosen(load_times_compute=1.0, chunks=0) is RestoreMode.OFF


def test_last_token_is_not_planned_for() -> None:
    """More chunks may be stored than the prompt can use."""
    assert chosen(load_times_compute=1.0, prompt_tokens=4096, chunks=90) is RestoreMode.CAKE


def test_without_costs_both_are_tried() -> None:
    choice = ModeChoice(profile=None, layer_count=LAYERS, chunk_tokens=CHUNK, step_tokens=STEP)
    assert choice.mode(prompt_tokens=100, stored_chunks=1) is RestoreMode.CAKE
