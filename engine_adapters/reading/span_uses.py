"""Who still reads the bytes of a span when its user has given it back."""

from contextlib import suppress
from typing import Protocol


class Use(Protocol):
    """A device that copies them, say. Thread-safe."""

    @property
    def is_over(self) -> bool:
        """Whether it needs them no more; never waits."""

    def wait(self) -> None:
        """Returns, or raises what went wrong, when it needs them no more."""


class SpanUses:
    """The memory of a span is not released before all of them are over.

    Its user adds to them, before it gives the span back; any thread may ask.
    """

    def __init__(self) -> None:
        self._uses: list[Use] = []

    @property
    def are_over(self) -> bool:
        """Whether nobody reads the bytes any more."""
        return all(use.is_over for use in self._uses)

    def add(self, use: Use) -> None:
        """One more."""
        self._uses.append(use)

    def wait(self) -> None:
        """Waits for each of them."""
        for use in self._uses:
            # Who waits for what a use makes hears of its failure; here it only has to be over.
            with suppress(Exception):
                use.wait()
