"""Which parts of a run the time allows, and which ones it leaves out. Pure."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Something that was not measured, and why."""

    name: str
    why: str


@dataclass(slots=True)
class TimeBudget:
    """Time for everything, from now on. What does not fit is written down, never forgotten.

    ``clock`` tells seconds.
    """

    limit_s: float
    clock: Callable[[], float]
    left_out: list[LeftOut] = field(default_factory=list)
    _begun_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._begun_s = self.clock()

    @property
    def left_s(self) -> float:
        """Seconds that are left; below 0 where it took longer."""
        return self._begun_s + self.limit_s - self.clock()

    def allows(self, name: str, needed_s: float, *, reserved_s: float = 0.0) -> bool:
        """Whether so much time is left beside ``reserved_s`` for what comes later.

        If not, ``name`` counts as left out.
        """
        left_s = self.left_s - reserved_s
        if needed_s <= left_s:
            return True
        self.leave_out(
            name, f"it takes about {needed_s:.0f} s, and {max(0.0, left_s):.0f} s are left"
        )
        return False

    def leave_out(self, name: str, why: str) -> None:
        """Writes down that ``name`` was not measured."""
        self.left_out.append(LeftOut(name=name, why=why))


def reserved_after(name: str, needs_s: dict[str, float]) -> float:
    """What the parts behind ``name`` need, in the order of ``needs_s``; raises ValueError."""
    names = list(needs_s)
    return sum(needs_s[later] for later in names[names.index(name) + 1 :])
