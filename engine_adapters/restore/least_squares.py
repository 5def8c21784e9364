"""Lines through measured times."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

_DEGREE_MAX = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement: a size (tokens or bytes, at least 1) and its seconds (above 0)."""

    size: int
    seconds: float

    def __post_init__(self) -> None:
        if self.size < 1 or not self.seconds > 0:
            raise ValueError(f"{self.seconds} s for a size of {self.size} is no measurement")


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """``constant + linear * size + square * size ** 2`` seconds."""

    constant: float
    linear: float
    square: float


def fit(samples: Sequence[Sample], *, degree: int) -> Curve:
    """The curve of degree 1 or 2 with the least sum of squared relative errors.

    No coefficient is negative, since no cost is, and the linear one is above 0, so that
    more tokens cost more. Relative errors, so that a short time counts as much as a long
    one. Raises ValueError without samples or for another degree.
    """
    if not samples:
        raise ValueError("a line needs at least one measurement")
    if not 1 <= degree <= _DEGREE_MAX:
        raise ValueError(f"a cost grows with degree 1 or {_DEGREE_MAX}, not {degree}")
    sizes = np.array([float(sample.size) for sample in samples])
    seconds = np.array([sample.seconds for sample in samples])
    # In units of the largest size: squares of bytes would swamp the constant.
    scale = float(sizes.max())
    powers = [(sizes / scale) ** power / seconds for power in range(degree + 1)]
    found = relative_costs(powers, above_0=1, count_max=len(set(sizes.tolist())))
    found += [0.0] * (_DEGREE_MAX - degree)
    constant, linear, square = (cost / scale**power for power, cost in enumerate(found))
    return Curve(constant=constant, linear=linear, square=square)


def relative_costs(
    terms: Sequence[NDArray[np.float64]], *, above_0: int, count_max: int
) -> list[float]:
    """What one of each term costs, with the least sum of squared relative errors.

    Each of ``terms`` has what it counts in every measurement, divided by the measured
    seconds. No cost is negative, the one of term ``above_0`` is above 0, and at most
    ``count_max`` of them are.
    """
    best_error, best = math.inf, [0.0] * len(terms)
    for chosen in _term_sets(len(terms), above_0, count_max):
        columns = np.stack([terms[term] for term in chosen], axis=1)
        found = np.linalg.lstsq(columns, np.ones(len(columns)), rcond=None)[0]
        error = float(np.square(columns @ found - 1).sum())
        costs = dict(zip(chosen, found.tolist(), strict=True))
        if error < best_error and min(costs.values()) >= 0 and costs[above_0] > 0:
            best_error, best = error, [costs.get(term, 0.0) for term in range(len(terms))]
    return best


def _term_sets(term_count: int, always: int, count_max: int) -> list[tuple[int, ...]]:
    """Terms that may be present together, one of them always; no more than ``count_max``.

    Trying them all finds the optimum without negative coefficients: it has some set of
    positive ones, and there it is the optimum without constraints.
    """
    others = [term for term in range(term_count) if term != always]
    return [
        tuple(sorted((always, *chosen)))
        for count in range(len(others) + 1)
        for chosen in combinations(others, count)
        if count < count_max
    ]
