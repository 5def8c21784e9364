import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from benchmarks.benchmark import BenchmarkError
from benchmarks.interleave import Rounds
from benchmarks.vllm.steps import (
    ENGINES,
    FIGURES,
    SAVING_ENGINES,
    WINDOW_STEPS,
    WINDOWS,
    Samples,
    check_saves,
    decode_in_turn,
    overhead,
    step_series,
    typical_s,
)


def windows(rounds: int, **seconds: float) -> Samples:
    return {
        f"{name}_{number}": (window_s,) * rounds
        for name, window_s in seconds.items()
        for number in range(WINDOWS)
    }


def test_engine_is_compared_with_the_mean_of_its_peers() -> None:
    measured = windows(3, ours=3.0, plain=1.0, control=2.0)
    assert overhead(measured, "ours", ("plain", "control")) == 2.0


def test_a_disturbance_of_one_round_does_not_count() -> None:
    measured = windows(3, ours=1.0)
    measured["ours_2"] = (9.0, 1.0, 1.0)
    assert typical_s(measured, "ours") == WINDOWS


def test_what_happens_in_every_round_counts() -> None:
    measured = windows(3, ours=1.0)
    measured["ours_2"] = (2.0, 2.0, 2.0)
    assert typical_s(measured, "ours") == WINDOWS + 1


def test_every_start_gives_a_ratio() -> None:
    starts = [
        windows(3, plain=1.0, control=1.0, bare=1.25, reading=1.0, cake=1.5, hcache=3.0),
        windows(3, plain=2.0, control=4.0, bare=6.0, reading=9.0, cake=3.0, hcache=3.0),
    ]
    found = {one.key: one for one in step_series(starts)}
    assert {one.key for one in found.values() if one.is_figure} == set(FIGURES)
    assert found["step_overhead"].samples == (1.5, 1.0)
    assert found["step_overhead_hcache"].samples == (3.0, 1.0)
    assert found["step_overhead_bare"].samples == (1.25, 2.0)
    assert found["step_overhead_reading"].samples == (1.0, 3.0)
    assert found["step_control"].samples == (1.0, 0.5)
    assert found["decode_cake_s"].samples == (1.5 * WINDOWS, 3.0 * WINDOWS)


class CountingLab(NamedTuple):
    """Engines that have counted something."""

    counts: dict[str, float]

    @contextmanager
    def awake(self, name: str) -> Iterator["CountingLab"]:
        yield self

    def generate(self, *prompts: list[int], max_tokens: int) -> None:
        """Nothing."""

    def counted(self, name: str) -> float:
        return self.counts.get(name, 0)


def test_connector_that_dropped_saves_is_refused() -> None:
    """A pause beyond the deadline of a put would make it look cheap."""
    check_saves(CountingLab({"saved_tokens": 64.0}))  # type: ignore[arg-type]
    for counts in ({"saved_tokens": 64.0, "dropped_saves": 2.0}, {}):
        with pytest.raises(BenchmarkError, match="cake has dropped"):
            check_saves(CountingLab(counts))  # type: ignore[arg-type]


class ScriptedLab:
    """Engines that note what they are asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_awake = False

    @contextmanager
    def awake(self, name: str) -> Iterator["ScriptedEngine"]:
        assert not self.is_awake, "one engine works at a time"
        self.is_awake = True
        yield ScriptedEngine(name, self.asked)
        self.is_awake = False


class ScriptedEngine:
    def __init__(self, name: str, asked: list[str]) -> None:
        self._name, self._asked = name, asked

    def begin_decoding(self, *prompts: list[int], max_tokens: int) -> None:
        assert max_tokens > WINDOWS * WINDOW_STEPS
        self._asked.append(f"begin {self._name}")

    def decode_s(self, step_count: int) -> float:
        self._asked.append(self._name)
        return float(step_count)

    def ask(self, verb: str) -> None:
        assert verb == "settle"
        assert self._name in SAVING_ENGINES
        assert self._asked[-1].split()[-1] == self._name

    def end_decoding(self) -> None:
        self._asked.append(f"end {self._name}")


def test_engines_take_turns_within_a_round() -> None:
    rounds = Rounds(count=1, count_min=1, time_limit_s=1.0)
    lab = ScriptedLab()
    found = decode_in_turn(lab, rounds=rounds, generator=random.Random(7))  # type: ignore[arg-type]
    assert found == windows(1, **dict.fromkeys(ENGINES, float(WINDOW_STEPS)))
    turns = [name for name in lab.asked if name in ENGINES]
    count = len(ENGINES)
    for first in range(0, len(turns), count):
        assert sorted(turns[first : first + count]) == sorted(ENGINES)
    warm_up = lab.asked[: len(lab.asked) // 2]
    assert sorted(warm_up[:count]) == sorted(f"begin {name}" for name in ENGINES)
    assert sorted(warm_up[-count:]) == sorted(f"end {name}" for name in ENGINES)
