"""A sentence of a paper with numbers, and ours for the same. Pure."""

from dataclasses import dataclass
from enum import Enum

PERCENT = 100.0


class Unit(Enum):
    """What the numbers of a statement are; ``value`` is printed behind them."""

    SAVED = "% less"
    SHARE = "%"
    RATIO = "x"
    SECONDS = "s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Numbers of one sentence and ours for the same: both ends of a range, or one number."""

    key: str
    section: str
    text: str
    unit: Unit
    paper: tuple[float, ...]
    ours: tuple[float, ...]

    @property
    def differences(self) -> tuple[float, ...]:
        """Of ours from the paper's: points of percentages, otherwise relative."""
        return tuple(
            ours - paper if self.is_percentage else ours / paper - 1
            for ours, paper in zip(self.ours, self.paper, strict=True)
        )

    @property
    def speedup_differences(self) -> tuple[float, ...]:
        """Relative, of savings as the speed-ups that they are; nothing of other units.

        From 93.5 to 93.8 % saved is from 15.4x to 16.1x.
        """
        if self.unit is not Unit.SAVED:
            return ()
        return tuple(
            (PERCENT - paper) / (PERCENT - ours) - 1
            for ours, paper in zip(self.ours, self.paper, strict=True)
        )

    @property
    def is_percentage(self) -> bool:
        """Whether numbers differ by points."""
        return self.unit in (Unit.SAVED, Unit.SHARE)
