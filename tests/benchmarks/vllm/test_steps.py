import random

import pytest

from benchmarks.interleave import Rounds
from benchmarks.vllm.steps import (
    GROUP_ROUNDS,
    STEPPED_ENGINES,
    WINDOW_STEPS,
    WINDOWS,
    Samples,
    decode_in_turn,
    overheads,
    step_series,
)


def windows(rounds: int, **seconds: float) -> Samples:
    return {
        f"{name}_{number}": (window_s,) * rounds
        for name, window_s in seconds.items()
        for number in range(WINDOWS)
    }


def test_a_ratio_is_formed_for_each_group_of_rounds() -> None:
    measured = windows(3 * GROUP_ROUNDS, ours=1.1, plain=1.0)
    assert overheads(measured, "ours", "plain") == pytest.approx([1.1, 1.1, 1.1])


@pytest.mark.parametrize("rounds", [1, GROUP_ROUNDS - 1, GROUP_ROUNDS, 2 * GROUP_ROUNDS - 1])
def test_left_over_rounds_belong_to_the_last_ratio(rounds: int) -> None:
    assert overheads(windows(rounds, ours=2.0, plain=1.0), "ours", "plain") == (2.0,)


def test_a_disturbance_of_one_round_does_not_count() -> None:
    measured = windows(GROUP_ROUNDS, ours=1.0, plain=1.0)
    measured["ours_2"] = (9.0, *measured["ours_2"][1:])
    assert overheads(measured, "ours", "plain") == (1.0,)


def test_what_happens_in_every_round_counts() -> None:
    measured = windows(GROUP_ROUNDS, ours=1.0, plain=1.0)
    measured["ours_2"] = (1.0 + WINDOWS,) * GROUP_ROUNDS
    assert overheads(measured, "ours", "plain") == (2.0,)


def test_connectors_and_noise_are_told_beside_every_round() -> None:
    measured = windows(GROUP_ROUNDS, plain=1.0, control=1.5, cake=2.0, hcache=3.0)
    found = {one.key: one for one in step_series(measured)}
    assert {key: one.value for key, one in found.items() if one.unit == "ratio"} == {
        "step_overhead": 2.0,
        "step_overhead_control": 1.5,
        "step_overhead_hcache": 3.0,
    }
    assert found["decode_cake_s"].samples == (2.0 * WINDOWS,) * GROUP_ROUNDS


class ScriptedLab:
    """Engines that note what they are asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def engine(self, name: str) -> "ScriptedEngine":
        return ScriptedEngine(name, self.asked)


class ScriptedEngine:
    def __init__(self, name: str, asked: list[str]) -> None:
        self._name, self._asked = name, asked

    def begin_decoding(self, *prompts: list[int], max_tokens: int) -> None:
        assert max_tokens > WINDOWS * WINDOW_STEPS
        self._asked.append(f"begin {self._name}")

    def decode_s(self, step_count: int) -> float:
        self._asked.append(self._name)
        return float(step_count)

    def end_decoding(self) -> None:
        self._asked.append(f"end {self._name}")


def test_engines_take_turns_within_a_round() -> None:
    rounds = Rounds(count=1, count_min=1, time_limit_s=1.0)
    lab = ScriptedLab()
    found = decode_in_turn(lab, rounds=rounds, generator=random.Random(7))  # type: ignore[arg-type]
    assert found == windows(1, **dict.fromkeys(STEPPED_ENGINES, float(WINDOW_STEPS)))
    turns = [name for name in lab.asked if name in STEPPED_ENGINES]
    count = len(STEPPED_ENGINES)
    for first in range(0, len(turns), count):
        assert sorted(turns[first : first + count]) == sorted(STEPPED_ENGINES)
    warm_up = lab.asked[: len(lab.asked) // 2]
    assert sorted(warm_up[:count]) == sorted(f"begin {name}" for name in STEPPED_ENGINES)
    assert sorted(warm_up[-count:]) == sorted(f"end {name}" for name in STEPPED_ENGINES)
