"""Loops over many items that let others have a turn now and then, without knowing who they are."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

ItemT = TypeVar("ItemT")

PAUSE_ITEMS = 256
"""Items between two pauses: some hundred microseconds."""


class Pauses:
    """Calls ``pause`` after each ``PAUSE_ITEMS`` items, of however many loops these are.

    What is decided must not be seen by others while a loop waits. The owner serialises the calls.
    """

    def __init__(self, pause: Callable[[], None] = lambda: None) -> None:
        self._pause = pause
        self._left = PAUSE_ITEMS

    def over(self, items: Iterable[ItemT]) -> Iterator[ItemT]:
        """The items."""
        for item in items:
            if self._left == 0:
                self._left = PAUSE_ITEMS
                self._pause()
            self._left -= 1
            yield item
