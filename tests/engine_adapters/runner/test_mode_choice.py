import pytest

from engine_adapters.restore import CostProfile, Mode
from engine_adapters.runner.mode_choice import (
    PLANNED_TOKENS,
    ModeError,
    ModelShape,
    choose_schedule,
)

NOW_S = 2.0
MHA = ModelShape(layer_count=8, position_count=32_768, hidden_bytes=2048, kv_bytes=4096)
GQA = ModelShape(layer_count=8, position_count=32_768, hidden_bytes=2048, kv_bytes=1024)


def profile(shape: ModelShape, **costs: float) -> CostProfile:
    return CostProfile(
        model="m",
        machine="n",
        measured_at_s=1.0,
        hidden_bytes=shape.hidden_bytes,
        kv_bytes=shape.kv_bytes,
        read_bytes_per_s=2048 / 2e-6,
        **{"compute_token_s": 8e-6, "project_token_s": 1e-6, **costs},
    )


@pytest.mark.parametrize(
    ("mode", "expected"), [(Mode.RECOMPUTE, "8 RE"), (Mode.KV, "8 KV"), (Mode.HIDDEN, "8 H")]
)
def test_modes_of_one_source_need_no_profile(mode: Mode, expected: str) -> None:
    for costs in (None, profile(MHA)):
        choice = choose_schedule(mode, MHA, costs, now_s=NOW_S)
        assert str(choice.schedule) == expected
        assert choice.note == ""


@pytest.mark.parametrize("mode", [Mode.HCACHE, Mode.NAIVE_HYBRID])
def test_modes_that_balance_costs_need_them(mode: Mode) -> None:
    with pytest.raises(ModeError, match=f"mode {mode} balances measured costs.*calibrate MODEL"):
        choose_schedule(mode, MHA, None, now_s=NOW_S)
    assert choose_schedule(mode, MHA, profile(MHA), now_s=NOW_S).note == ""


@pytest.mark.parametrize(("shape", "expected"), [(MHA, "8 H"), (GQA, "8 KV")])
def test_auto_without_a_profile_takes_the_smaller_state_and_says_so(
    shape: ModelShape, expected: str
) -> None:
    choice = choose_schedule(Mode.AUTO, shape, None, now_s=NOW_S)
    assert str(choice.schedule) == expected
    assert "mode auto knows no costs" in choice.note
    assert "\n" not in choice.note


def test_old_costs_are_used_and_their_age_is_said() -> None:
    young_s, old_s = (1.0 + days * 24 * 3600 for days in (89.9, 90.1))
    assert choose_schedule(Mode.AUTO, MHA, profile(MHA), now_s=young_s).note == ""
    choice = choose_schedule(Mode.AUTO, MHA, profile(MHA), now_s=old_s)
    assert str(choice.schedule) == "7 H + 1 RE"
    assert "measured 90 days ago" in choice.note


def test_auto_by_what_was_measured() -> None:
    assert str(choose_schedule(Mode.AUTO, MHA, profile(MHA), now_s=NOW_S).schedule) == "7 H + 1 RE"
    slow = profile(MHA, compute_token_s=1e-3, project_token_s=1e-4)
    assert str(choose_schedule(Mode.AUTO, MHA, slow, now_s=NOW_S).schedule) == "8 KV"
    fast = profile(MHA, compute_token_s=1e-9)
    assert str(choose_schedule(Mode.AUTO, MHA, fast, now_s=NOW_S).schedule) == "8 RE"


def test_a_plan_is_for_a_history_that_the_model_can_have() -> None:
    """At the planned length computing from tokens is too slow; for a short one it is not."""
    costs = profile(MHA, compute_token_s=1e-9, compute_square_s=8e-6 / PLANNED_TOKENS)
    short = ModelShape(layer_count=8, position_count=4, hidden_bytes=2048, kv_bytes=4096)
    assert str(choose_schedule(Mode.AUTO, MHA, costs, now_s=NOW_S).schedule) == "7 H + 1 RE"
    assert str(choose_schedule(Mode.AUTO, short, costs, now_s=NOW_S).schedule) == "8 RE"
