"""Lines through measured times."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

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
    best_error, best = float("inf"), np.zeros(_DEGREE_MAX + 1)
    for terms in _term_sets(degree, len(set(sizes.tolist()))):
        columns = np.stack([powers[term] for term in terms], axis=1)
        found = np.linalg.lstsq(columns, np.ones(len(samples)), rcond=None)[0]
        error = float(np.square(columns @ found - 1).sum())
        coefficients = dict(zip(terms, found.tolist(), strict=True))
        if error < best_error and min(coefficients.values()) >= 0 and coefficients[1] > 0:
            best_error = error
            best = np.array([coefficients.get(term, 0.0) for term in range(_DEGREE_MAX + 1)])
    constant, linear, square = (best / scale ** np.arange(_DEGREE_MAX + 1)).tolist()
    return Curve(constant=constant, linear=linear, square=square)


def _term_sets(degree: int, size_count: int) -> list[tuple[int, ...]]:
    """Powers that may be present together, the linear one always; no more than sizes.

    Trying them all finds the optimum without negative coefficients: it has some set of
    positive ones, and there it is the optimum without constraints.
    """
    others = [power for power in range(degree + 1) if power != 1]
    return [
        tuple(sorted((1, *chosen)))
        for count in range(len(others) + 1)
        for chosen in combinations(others, count)
        if count < size_count
    ]
