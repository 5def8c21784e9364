"""A clock of a machine that has one bad moment."""


class BadMoment:
    """All work takes a second, but four of them between the first pause and the second."""

    def __init__(self) -> None:
        self.pause_count = 0
        self._now_s = 0.0

    def clock(self) -> float:
        """Moves with each look."""
        self._now_s += 4.0 if self.pause_count == 1 else 1.0
        return self._now_s

    def pause(self) -> None:
        """What is made between two repetitions."""
        self.pause_count += 1
