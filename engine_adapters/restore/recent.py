"""What a unit took lately, and how far the next one may be from that."""

from collections import deque


class RecentMean:
    """Amount for each unit, over about the last ``memory`` units.

    It begins with an expectation that counts as much as ``weight`` units. Not thread-safe.
    """

    __slots__ = ("_amount", "_expected", "_memory", "_units")

    def __init__(self, expected: float, *, weight: float, memory: float) -> None:
        self._expected = expected
        self._amount = expected * weight
        self._units = weight
        self._memory = memory

    def add(self, amount: float, *, units: float = 1.0) -> None:
        """So much for so many more units; older ones keep what these leave of the memory."""
        room = max(0.0, self._memory - units)
        if self._units > room:
            self._amount *= room / self._units
            self._units = room
        self._amount += amount
        self._units += units

    def ease(self) -> None:
        """Moves a mean above the expectation back towards it, by as much as one unit weighs."""
        if self.value > self._expected:
            self.add(self._expected)

    @property
    def value(self) -> float:
        """Amount of one unit."""
        return self._amount / self._units


NO_DOUBT = 1.0
"""Of costs that are exactly known, as in a simulation."""
DOUBT_LEAST = 1.5
"""Of costs that were measured: the steadiest machine may get other work in the next step."""
DOUBT_MOST = 4.0
"""More is another machine: who planned for that would hardly ever compute anything."""
SURPRISES_REMEMBERED = 4


class Doubt:
    """Times as much as expected that something may be, by the worst that was seen lately.

    It begins with ``expected``, which is forgotten as what was seen is, down to DOUBT_LEAST or
    to ``expected`` if that is less. Not thread-safe. Raises ValueError below NO_DOUBT.
    """

    __slots__ = ("_least", "_surprises")

    def __init__(self, expected: float) -> None:
        if not expected >= NO_DOUBT:
            raise ValueError(f"a doubt is at least {NO_DOUBT}, not {expected}")
        self._least = min(expected, DOUBT_LEAST)
        self._surprises = deque([expected], maxlen=SURPRISES_REMEMBERED)

    def add(self, surprise: float) -> None:
        """Something was that many times as much as expected."""
        self._surprises.append(surprise)

    @property
    def value(self) -> float:
        """At most DOUBT_MOST."""
        return min(max(self._least, *self._surprises), DOUBT_MOST)
