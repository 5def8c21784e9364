"""Runs alternatives in turn, so that a drift of the machine meets all of them alike.

A round runs every alternative once. Alternatives that are compared form a group and
run next to each other; the order of the groups and of the alternatives in each is
drawn again for every round. The first round warms up and is not counted. Ratios are
formed within each round, and their median is what is published.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Measured = Mapping[str, float]
"""What one repetition measured, by the key of its series."""


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One of the things that are compared.

    ``prepare`` runs before each repetition and is not part of it. ``run`` measures one
    repetition and always answers with the same keys.
    """

    run: Callable[[], Measured]
    prepare: Callable[[], None] = _nothing


Group = Sequence[Alternative]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """How many rounds are counted: ``count``, or fewer when ``time_limit_s`` is over.

    ``count_min`` rounds are counted however long they take.
    """

    count: int
    count_min: int
    time_limit_s: float

    def __post_init__(self) -> None:
        if not 1 <= self.count_min <= self.count:
            raise ValueError(f"count_min must be 1 to count ({self.count}), not {self.count_min}")


def interleave(
    groups: Sequence[Group],
    *,
    rounds: Rounds,
    generator: random.Random,
    announce: Callable[[str], None],
    prepare: Callable[[], None] = _nothing,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, tuple[float, ...]]:
    """Runs all rounds; returns the samples of each key, one for each counted round.

    ``announce`` hears of every round before it starts; ``prepare`` runs before each.
    """
    deadline = clock() + rounds.time_limit_s
    samples: dict[str, list[float]] = {}
    announce("warming up")
    prepare()
    _run_round(groups, generator)
    for number in range(rounds.count):
        if number >= rounds.count_min and clock() > deadline:
            break
        announce(f"round {number + 1} of {rounds.count}")
        prepare()
        for key, value in _run_round(groups, generator).items():
            samples.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in samples.items()}


def ratios(ours: Sequence[float], peers: Sequence[float]) -> tuple[float, ...]:
    """Ours over the peer's, round by round."""
    return tuple(our / peer for our, peer in zip(ours, peers, strict=True))


def _run_round(groups: Sequence[Group], generator: random.Random) -> dict[str, float]:
    measured: dict[str, float] = {}
    for group in generator.sample(groups, len(groups)):
        for alternative in generator.sample(group, len(group)):
            alternative.prepare()
            result = alternative.run()
            if doubled := measured.keys() & result.keys():
                raise ValueError(f"two alternatives measure {', '.join(sorted(doubled))}")
            measured.update(result)
    return measured
