"""When a copy is over."""

from collections.abc import Sequence
from typing import Protocol


class Landing(Protocol):
    """The end of a copy, or of other work of the device. Thread-safe.

    Until it is over nobody may read what the copy writes, nor write what it reads, nor give either
    away.
    """

    @property
    def is_over(self) -> bool:
        """Whether the bytes lie where they belong; never waits."""

    def wait(self) -> None:
        """The calling thread waits. Raises what the copy failed with."""

    def hold_engine(self) -> None:
        """What the calling engine's thread launches from here on waits, on the device."""


class _All:
    """The last of several landings, in whatever order they come."""

    def __init__(self, landings: Sequence[Landing]) -> None:
        self._landings = tuple(landings)

    @property
    def is_over(self) -> bool:
        """Whether each of them is."""
        return all(landing.is_over for landing in self._landings)

    def wait(self) -> None:
        """Waits for each of them, also where one has failed; raises what the first one raised."""
        failures = []
        for landing in self._landings:
            try:
                landing.wait()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def hold_engine(self) -> None:
        """The engine waits for each of them."""
        for landing in self._landings:
            landing.hold_engine()


def all_of(landings: Sequence[Landing]) -> Landing:
    """Over when all of them are."""
    return _All(landings)
