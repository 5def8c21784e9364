"""The three sizes that labs have, and the markers that choose one.

A lab is a test that repeats one thing as often as its size says: it kills, cuts, flips or draws
examples. ``make test`` runs SMOKE, so that every promise is touched, ``make test-labs`` QUICK and
``make test-long`` LONG: the same code with more cases. ``tests/support/labs.py`` has all labs with
their sizes. What has no marker of a size runs in ``make test``.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest

EVERY = -1
"""The size of a lab that tries every case there is."""


class Scale(StrEnum):
    """A size; each is a marker of pytest, too."""

    SMOKE = "smoke"
    QUICK = "quick"
    LONG = "long"


def at(scale: Scale) -> pytest.MarkDecorator:
    """The marker of a test or of a parameter that runs at this size only."""
    marker: pytest.MarkDecorator = getattr(pytest.mark, scale.value)
    return marker


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """Sizes of one lab in ``cases`` (a noun in the plural); None where it does not run.

    ``promise`` is what it would find broken, ``file`` the test, below ``tests``.
    """

    promise: str
    file: str
    cases: str
    smoke: int | None
    quick: int | None
    long: int | None

    def size(self, scale: Scale) -> int:
        """How many cases at this size; raises ValueError where the lab does not run."""
        size = self._sizes[scale]
        if size is None:
            raise ValueError(f"the lab of {self.cases} does not run at {scale}")
        return size

    def sizes(self, argument: str) -> pytest.MarkDecorator:
        """Runs a test once at each size; ``argument`` takes the number of cases."""
        return pytest.mark.parametrize(argument, self._parameters(self.size))

    def marker(self) -> pytest.MarkDecorator:
        """Of a test that knows its cases itself; raises ValueError unless it has one size."""
        (scale,) = (scale for scale, size in self._sizes.items() if size is not None)
        return at(scale)

    def scales(self, argument: str) -> pytest.MarkDecorator:
        """Runs a test once at each size; ``argument`` takes the Scale."""
        return pytest.mark.parametrize(argument, self._parameters(lambda scale: scale))

    def first(
        self, arguments: str | Sequence[str], cases: Iterable[Any], *, name: Callable[[Any], str]
    ) -> pytest.MarkDecorator:
        """Runs a test with each of the named cases once, at the smallest size that has it.

        The most telling ones come first: so many as the lab has at a size run by then. With
        several arguments a case is a tuple.
        """
        is_one = isinstance(arguments, str)
        values = ((case, (case,) if is_one else case) for case in cases)
        marked = [
            pytest.param(*parts, marks=at(self._first_scale(place)), id=name(case))
            for place, (case, parts) in enumerate(values)
        ]
        return pytest.mark.parametrize(arguments, marked)

    def params(self, cases: Iterable[str]) -> list[Any]:
        """The same for the parameters of a fixture."""
        return [
            pytest.param(case, marks=at(self._first_scale(place)))
            for place, case in enumerate(cases)
        ]

    @property
    def _sizes(self) -> dict[Scale, int | None]:
        return {Scale.SMOKE: self.smoke, Scale.QUICK: self.quick, Scale.LONG: self.long}

    def _parameters(self, value: Callable[[Scale], Any]) -> list[Any]:
        return [
            pytest.param(value(scale), marks=at(scale), id=scale.value)
            for scale, size in self._sizes.items()
            if size is not None
        ]

    def _first_scale(self, place: int) -> Scale:
        """The smallest size at which a case at this place of the order runs."""
        for scale, size in self._sizes.items():
            if size is not None and (size == EVERY or place < size):
                return scale
        raise ValueError(f"the lab has fewer {self.cases} than the test names")
