"""What a unit took lately."""


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
