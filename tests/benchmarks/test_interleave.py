import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.interleave import Alternative, Measured, Rounds, interleave, ratios

PATIENT = Rounds(count=7, count_min=7, time_limit_s=1e9)


class Recorder:
    """Alternatives that write down when they ran."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def alternative(self, name: str) -> Alternative:
        def prepare() -> None:
            self.log.append(f"prepare {name}")

        def run() -> Measured:
            self.log.append(name)
            return {name: float(len(self.log))}

        return Alternative(run=run, prepare=prepare)


def run(
    groups: list[list[Alternative]], *, rounds: Rounds = PATIENT, seed: int = 0
) -> dict[str, tuple[float, ...]]:
    return interleave(groups, rounds=rounds, generator=random.Random(seed), announce=lambda _: None)


@given(seed=st.integers())
def test_every_round_runs_everything_once_and_groups_stay_together(seed: int) -> None:
    recorder = Recorder()
    groups = [[recorder.alternative(name) for name in pair] for pair in ("ab", "cd")]
    run(groups, seed=seed)
    ran = [entry for entry in recorder.log if not entry.startswith("prepare")]
    rounds = ["".join(ran[start : start + 4]) for start in range(0, len(ran), 4)]
    assert len(rounds) == 8
    for played in rounds:
        assert {"".join(sorted(played[:2])), "".join(sorted(played[2:]))} == {"ab", "cd"}


def test_preparation_comes_right_before_each_run() -> None:
    recorder = Recorder()
    run([[recorder.alternative("a"), recorder.alternative("b")]])
    for before, after in zip(recorder.log[::2], recorder.log[1::2], strict=True):
        assert before == f"prepare {after}"


def test_the_order_changes_and_repeats_with_the_seed() -> None:
    logs = []
    for _ in range(2):
        recorder = Recorder()
        run([[recorder.alternative(name) for name in "abc"]], seed=5)
        logs.append([entry for entry in recorder.log if not entry.startswith("prepare")])
    assert logs[0] == logs[1]
    assert len({tuple(logs[0][start : start + 3]) for start in range(0, 24, 3)}) > 1


def test_the_first_round_is_not_counted() -> None:
    values = iter(range(8))
    samples = run([[Alternative(run=lambda: {"a": float(next(values))})]])
    assert samples == {"a": (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)}


def test_time_ends_the_rounds_but_not_before_the_least_count() -> None:
    now = iter(float(second) for second in range(100))
    samples = interleave(
        [[Alternative(run=lambda: {"a": 1.0})]],
        rounds=Rounds(count=7, count_min=3, time_limit_s=2.5),
        generator=random.Random(0),
        announce=lambda _: None,
        clock=lambda: next(now),
    )
    # The clock is asked at the start, then once before each round after the third.
    assert len(samples["a"]) == 5


def test_every_round_is_prepared_before_its_alternatives() -> None:
    recorder = Recorder()
    interleave(
        [[recorder.alternative("a"), recorder.alternative("b")]],
        rounds=Rounds(count=2, count_min=2, time_limit_s=0.0),
        generator=random.Random(0),
        announce=lambda _: None,
        prepare=lambda: recorder.log.append("round"),
    )
    ran = [entry for entry in recorder.log if not entry.startswith("prepare")]
    assert ran[::3] == ["round"] * 3
    assert len(ran) == 9


def test_every_round_is_announced() -> None:
    heard: list[str] = []
    interleave(
        [[Alternative(run=lambda: {"a": 1.0})]],
        rounds=Rounds(count=2, count_min=1, time_limit_s=1e9),
        generator=random.Random(0),
        announce=heard.append,
    )
    assert heard == ["warming up", "round 1 of 2", "round 2 of 2"]


def test_two_alternatives_cannot_measure_the_same() -> None:
    alternative = Alternative(run=lambda: {"a": 1.0})
    with pytest.raises(ValueError, match="two alternatives measure a"):
        run([[alternative, alternative]])


def test_impossible_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="count_min must be 1 to count"):
        Rounds(count=3, count_min=4, time_limit_s=1.0)


def test_ratios_are_formed_round_by_round() -> None:
    assert ratios((2.0, 9.0), (1.0, 3.0)) == (2.0, 3.0)
