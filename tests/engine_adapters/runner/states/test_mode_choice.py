from dataclasses import replace
from typing import Any

import pytest

from engine_adapters.restore import PLANNED_TOKENS, CostProfile, Mode, schedule_for
from engine_adapters.runner.states.mode_choice import ModeError, ModelShape, choose_schedule

NOW_S = 2.0
MHA = ModelShape(layer_count=8, position_count=32_768, hidden_bytes=2048, kv_bytes=4096)
GQA = ModelShape(layer_count=8, position_count=32_768, hidden_bytes=2048, kv_bytes=1024)


def profile(shape: ModelShape, **costs: float) -> CostProfile:
    values: dict[str, Any] = {"compute_token_s": 8e-6, "project_token_s": 1e-6, **costs}
    return CostProfile(
        model="m",
        machine="n",
        measured_at_s=1.0,
        hidden_bytes=shape.hidden_bytes,
        kv_bytes=shape.kv_bytes,
        read_bytes_per_s=2048 / 2e-6,
        **values,
    )


@pytest.mark.parametrize(
    ("mode", "expected"), [(Mode.RECOMPUTE, "8 RE"), (Mode.KV, "8 KV"), (Mode.HIDDEN, "8 H")]
)
def test_modes_of_one_source_need_no_profile(mode: Mode, expected: str) -> None:
    for costs in (None, profile(MHA)):
        choice = choose_schedule(mode, MHA, costs, now_s=NOW_S)
        assert str(choice.schedule) == expected
        assert choice.note == ""


@pytest.mark.parametrize("mode", [Mode.HCACHE, Mode.NAIVE_HYBRID, Mode.CAKE])
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
    assert str(choice.schedule) == "8 H"
    assert "measured 90 days ago" in choice.note


def test_costs_of_another_machine_are_used_and_both_are_named() -> None:
    for mode in (Mode.AUTO, Mode.HCACHE):
        assert choose_schedule(mode, MHA, profile(MHA), now_s=NOW_S, machine="n").note == ""
        choice = choose_schedule(mode, MHA, profile(MHA), now_s=NOW_S, machine="h, 4 threads")
        assert str(choice.schedule) == "8 H"
        assert "were measured on n, and this is h, 4 threads" in choice.note
    assert choose_schedule(Mode.KV, MHA, profile(MHA), now_s=NOW_S, machine="h").note == ""


def test_auto_by_what_was_measured() -> None:
    chosen = {
        (str(choice.schedule), choice.is_cake)
        for costs in (
            profile(MHA),
            profile(MHA, compute_constant_s=0.01),
            profile(MHA, compute_token_s=1e-9),
        )
        for choice in [choose_schedule(Mode.AUTO, MHA, costs, now_s=NOW_S)]
    }
    # Both ends; layers where steps are dear; nothing where computing is quicker.
    assert chosen == {("8 H", True), ("8 H", False), ("8 RE", False)}


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ({}, "8 H"),
        ({"compute_token_s": 1e-3, "project_token_s": 1e-4}, "8 KV"),
        ({"compute_token_s": 1e-9}, "8 H"),
    ],
)
def test_cake_stores_what_is_sooner_restored(costs: dict[str, float], expected: str) -> None:
    choice = choose_schedule(Mode.CAKE, MHA, profile(MHA, **costs), now_s=NOW_S)
    assert (str(choice.schedule), choice.is_cake) == (expected, True)
    grouped = choose_schedule(Mode.CAKE, GQA, profile(GQA, **costs), now_s=NOW_S)
    assert str(grouped.schedule) == "8 KV"


def test_auto_is_never_predicted_to_be_slower_than_any_division_of_layers() -> None:
    for compute_constant_s in (0.0, 0.01, 0.1):
        costs = profile(MHA, compute_constant_s=compute_constant_s)
        layers = schedule_for(Mode.AUTO, costs.costs(PLANNED_TOKENS), MHA.layer_count)
        choice = choose_schedule(Mode.AUTO, MHA, costs, now_s=NOW_S)
        assert choice.is_cake or choice.schedule == layers


def test_a_plan_is_for_a_history_that_the_model_can_have() -> None:
    """At the planned length computing from tokens is too slow; for a short one it is not."""
    costs = profile(MHA, compute_token_s=1e-9, compute_square_s=8e-6 / PLANNED_TOKENS)
    short = ModelShape(layer_count=8, position_count=4, hidden_bytes=2048, kv_bytes=4096)
    assert str(choose_schedule(Mode.AUTO, MHA, costs, now_s=NOW_S).schedule) == "8 H"
    assert str(choose_schedule(Mode.AUTO, short, costs, now_s=NOW_S).schedule) == "8 RE"


def encoded(*, decode_hidden_token_s: float, decode_kv_token_s: float) -> CostProfile:
    """Reading takes 2 and 4 us, projecting 1 us, computing 8 us a token."""
    return replace(
        profile(MHA),
        codec="zstd",
        decode_hidden_token_s=decode_hidden_token_s,
        decode_kv_token_s=decode_kv_token_s,
    )


@pytest.mark.parametrize(
    ("mode", "slow", "free", "expected"),
    [
        # Nothing is worth its decoding.
        (Mode.AUTO, encoded(decode_hidden_token_s=1.0, decode_kv_token_s=1.0), "8 H", "8 RE"),
        # Keys and values are decoded sooner than they are read, hidden states are not.
        (Mode.CAKE, encoded(decode_hidden_token_s=6e-6, decode_kv_token_s=1e-6), "8 H", "8 KV"),
        # As many layers computed as take as long as decoding the others.
        (
            Mode.NAIVE_HYBRID,
            encoded(decode_hidden_token_s=8e-6, decode_kv_token_s=8e-6),
            "6 KV + 2 RE",
            "5 KV + 3 RE",
        ),
    ],
)
def test_slow_decoding_changes_what_is_stored(
    mode: Mode, slow: CostProfile, free: str, expected: str
) -> None:
    chosen = [
        str(choose_schedule(mode, MHA, costs, now_s=NOW_S, codec=codec).schedule)
        for costs, codec in ((slow, "zstd"), (slow, "raw"), (profile(MHA), "zstd"))
    ]
    assert chosen == [expected, free, free]


def test_a_codec_that_was_not_measured_is_said() -> None:
    costs = encoded(decode_hidden_token_s=1e-6, decode_kv_token_s=1e-6)
    for codec in ("raw", "zstd"):
        assert choose_schedule(Mode.AUTO, MHA, costs, now_s=NOW_S, codec=codec).note == ""
    note = choose_schedule(Mode.AUTO, MHA, costs, now_s=NOW_S, codec="int8").note
    assert "say nothing of decoding int8" in note
    assert note.endswith("calibrate MODEL --codec int8` measures it")
    old_s = NOW_S + 100 * 24 * 3600
    both = choose_schedule(Mode.AUTO, MHA, costs, now_s=old_s, codec="int8").note
    assert both.endswith(f"measures them again; {note}")
    assert choose_schedule(Mode.KV, MHA, costs, now_s=NOW_S, codec="int8").note == ""


def test_a_plan_is_for_the_length_that_the_profile_names() -> None:
    costs = profile(MHA, compute_token_s=1e-9, compute_square_s=8e-6 / PLANNED_TOKENS)
    schedules = [
        str(
            choose_schedule(
                Mode.AUTO, MHA, replace(costs, planned_tokens=planned_tokens), now_s=NOW_S
            ).schedule
        )
        for planned_tokens in (4, PLANNED_TOKENS)
    ]
    assert schedules == ["8 RE", "8 H"]
