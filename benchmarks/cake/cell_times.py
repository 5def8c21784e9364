"""What was measured in one cell, and what it says. Pure."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

SPEEDUP_MAX = 10.0
"""The paper leaves speed-ups above this out of its means (section 5.2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellTimes:
    """Seconds until the first token, one of each for every round, and the oracle's.

    ``oracle_s`` is by what loading and computing took alone, each with the machine to itself;
    ``nominal_oracle_s`` has the device at its nominal rate instead, and ``beside_oracle_s`` is by
    what both took beside each other, as they are in Cake. ``were_equal`` says whether both ways
    of restoring generated what computing did. ``cake_parts_s`` tells what Cake's seconds
    consist of.
    """

    cake_s: tuple[float, ...]
    load_s: tuple[float, ...]
    compute_s: tuple[float, ...]
    oracle_s: tuple[float, ...]
    nominal_oracle_s: tuple[float, ...]
    beside_oracle_s: tuple[float, ...]
    were_equal: bool
    cake_parts_s: Mapping[str, tuple[float, ...]]

    @property
    def over_load(self) -> float:
        """Speed-up over loading alone: the median of the rounds, as all of these."""
        return median_ratio(self.load_s, self.cake_s)

    @property
    def over_compute(self) -> float:
        """Speed-up over computing alone."""
        return median_ratio(self.compute_s, self.cake_s)

    @property
    def to_oracle(self) -> float:
        """Our time over the oracle's."""
        return median_ratio(self.cake_s, self.oracle_s)

    @property
    def to_nominal_oracle(self) -> float:
        """The same where the device is taken at its nominal rate."""
        return median_ratio(self.cake_s, self.nominal_oracle_s)

    @property
    def to_beside_oracle(self) -> float:
        """Our time over the oracle's where both sides hinder each other as in ours."""
        return statistics.median(self.cake_s) / statistics.median(self.beside_oracle_s)

    @property
    def to_best_baseline(self) -> float:
        """Our time over that of the better baseline; above 1 it would have been faster."""
        return max(
            median_ratio(self.cake_s, self.load_s), median_ratio(self.cake_s, self.compute_s)
        )

    def joined(self, more: "CellTimes") -> "CellTimes":
        """With the rounds of another measurement of the same cell."""
        return CellTimes(
            cake_s=self.cake_s + more.cake_s,
            load_s=self.load_s + more.load_s,
            compute_s=self.compute_s + more.compute_s,
            oracle_s=self.oracle_s + more.oracle_s,
            nominal_oracle_s=self.nominal_oracle_s + more.nominal_oracle_s,
            beside_oracle_s=self.beside_oracle_s + more.beside_oracle_s,
            were_equal=self.were_equal and more.were_equal,
            cake_parts_s={
                name: seconds + more.cake_parts_s[name]
                for name, seconds in self.cake_parts_s.items()
            },
        )


def median_ratio(ours: Sequence[float], others: Sequence[float]) -> float:
    """Median of the ratios of each round."""
    return statistics.median(our / other for our, other in zip(ours, others, strict=True))


def mean_speedup(speedups: Collection[float]) -> float:
    """Mean of those that the paper would count, of all where it would count none."""
    counted = [each for each in speedups if each <= SPEEDUP_MAX]
    return statistics.mean(counted or speedups)
