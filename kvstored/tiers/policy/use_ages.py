"""At which ages keys were used again, and how many uses a key of an age brings for its room."""

STEPS_PER_DOUBLING = 4
BUCKET_COUNT = 192
"""Ages up to 2^48."""
FADE = 0.97
"""What counts of what was seen before the last look."""
_GROWTH = 2.0 ** (1 / STEPS_PER_DOUBLING)
_EVENTS_MIN = 0.5
"""Fewer events beyond an age say nothing about it."""
_WIDTHS = [_GROWTH ** (bucket - 0.5) * (_GROWTH - 1) for bucket in range(BUCKET_COUNT)]


def bucket_of(age: int) -> int:
    """The bucket of an age from 0 on, in constant time."""
    age += 1
    doublings = age.bit_length() - 1
    steps = (age << 2 >> doublings) & 3
    return doublings * STEPS_PER_DOUBLING + steps


class UseAges:
    """Estimates, for keys of one kind, the density of hits by age.

    The density at an age is the number of uses that keys of this age and older had, over the
    time that they spent at such ages: what a key brings for each moment in which it takes room
    (Beckmann, Chen, Cidon: LHD, NSDI 2018). Until enough was seen it falls as 1 / age: then the
    oldest key is the worst one, whatever its kind.
    """

    def __init__(self) -> None:
        self._hits = [0.0] * BUCKET_COUNT
        self._ends = [0.0] * BUCKET_COUNT
        self._densities: list[float] = [_GROWTH**-bucket for bucket in range(BUCKET_COUNT)]

    def end(self, age: int, *, is_hit: bool) -> None:
        """Hears that a key of this age was used again, or was given up for good."""
        bucket = bucket_of(age)
        self._ends[bucket] += 1
        if is_hit:
            self._hits[bucket] += 1

    def density(self, age: int) -> float:
        """Uses for each moment of room, as it was at the last look."""
        return self._densities[bucket_of(age)]

    def look(self) -> None:
        """Learns the densities from what was seen, which fades."""
        hits = ends = room = 0.0
        found: list[float | None] = [None] * BUCKET_COUNT
        for bucket in range(BUCKET_COUNT - 1, -1, -1):
            # Those that end here stay for half of it.
            room += (ends + self._ends[bucket] / 2) * _WIDTHS[bucket]
            hits += self._hits[bucket]
            ends += self._ends[bucket]
            if ends >= _EVENTS_MIN:
                found[bucket] = hits / (room + 1)
            self._hits[bucket] *= FADE
            self._ends[bucket] *= FADE
        density = 1.0
        for bucket, known in enumerate(found):
            density = density / _GROWTH if known is None else known
            self._densities[bucket] = density
