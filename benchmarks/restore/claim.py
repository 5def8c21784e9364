"""What the paper says about a speed-up, and how far ours is from it."""

from dataclasses import dataclass

from engine_adapters.restore import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """``mode`` is ``low`` to ``high`` times as fast as ``over``; one figure has both alike.

    ``section`` is where the paper says so. A claim that our factors were derived from is
    printed and not counted (``is_counted``), and so are single figures.
    """

    mode: Mode = Mode.HCACHE
    over: Mode
    low: float
    high: float
    section: str
    is_calibrated: bool = False

    @property
    def is_counted(self) -> bool:
        """Whether it is a range that our figure may lie in or not."""
        return self.low < self.high and not self.is_calibrated

    def difference(self, speedup: float) -> float:
        """Relative to the nearer end of the range; 0 within it."""
        if speedup < self.low:
            return speedup / self.low - 1
        return max(0.0, speedup / self.high - 1)

    def __str__(self) -> str:
        return f"{self.low:g}" if self.low == self.high else f"{self.low:g} - {self.high:g}"


def over(
    mode: Mode, low: float, high: float | None = None, *, section: str, of: Mode = Mode.HCACHE
) -> Claim:
    """The claim that ``of`` is faster than ``mode``; one figure when ``high`` is not given."""
    return Claim(mode=of, over=mode, low=low, high=low if high is None else high, section=section)
