"""Which slab of frames is emptied so that another size class can have it.

Pure bookkeeping of integers; the owner serialises the calls.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heapreplace
from math import ceil

import numpy as np
from numpy.typing import NDArray

OLD_SHARE = 0.9
"""Part of a slab's places that must be old for the slab to be.

With all of them a few frames that are read now and then would keep a slab for ever; with half
of them classes would take slabs from each other again and again, good frames and all.
"""


class SlabUses:
    """When the frames of each slab were used last, and how many of them may go.

    A slab has as many *places* as frames of its size class fit it. Its *late use* is the time
    by which ``OLD_SHARE`` of its places had their last use. A place without a frame was used
    when its last one was, or when the slab was taken: its class must have time to fill it. A
    slab can be emptied while it has frames and all of them may go.

    A use costs one store. Late uses are worked out when they are needed: they only grow, so a
    slab's is not worked out again before a time that is after what it was.
    """

    def __init__(self, slab_count: int) -> None:
        self._times: list[NDArray[np.uint64]] = [np.zeros(0, np.uint64)] * slab_count
        self._class_bytes = [0] * slab_count
        self._used_counts = [0] * slab_count
        self._loose_counts = [0] * slab_count
        self._open_counts = [0] * slab_count
        self._late_uses_min = [0] * slab_count
        """No slab's late use is before this."""
        self._clock = 0

    def take(self, slab: int, place: int, *, class_bytes: int, place_count: int) -> None:
        """Hears of a frame in use, used now, that may not go yet."""
        if self._used_counts[slab] == 0:
            self._times[slab] = np.full(place_count, self._clock, np.uint64)
            self._class_bytes[slab] = class_bytes
        self._used_counts[slab] += 1
        self.touch(slab, place)

    def touch(self, slab: int, place: int) -> None:
        """Hears of a use."""
        self._clock += 1
        self._times[slab][place] = self._clock

    def free(self, slab: int) -> None:
        """Hears that a frame is free that could not go by itself any more."""
        self._used_counts[slab] -= 1

    def loosen(self, slab: int) -> None:
        """Hears that one more frame of a slab may go."""
        self._loose_counts[slab] += 1

    def hold(self, slab: int) -> None:
        """Hears that one of those frames may not go any more."""
        self._loose_counts[slab] -= 1

    def begin_open(self, slab: int) -> None:
        """Hears that a frame of a slab is kept for as long as its owner likes."""
        self._open_counts[slab] += 1

    def end_open(self, slab: int) -> None:
        """Hears that one of those frames is like others now, or free."""
        self._open_counts[slab] -= 1

    def frame_counts(self) -> list[tuple[int, int]]:
        """Of each slab with frames, their size class and how many they are."""
        counts = zip(self._class_bytes, self._used_counts, strict=True)
        return [(class_bytes, used) for class_bytes, used in counts if used]

    def is_empty(self, slab: int) -> bool:
        """Whether a slab has no frames."""
        return self._used_counts[slab] == 0

    def nearly_loose(self, class_bytes: int) -> list[int]:
        """Slabs of other classes by how soon all of their frames may be gone, the first first.

        Those with the fewest open frames, which nothing ends; of these, those with the fewest
        frames that may not go.
        """
        slabs = [
            slab
            for slab, used in enumerate(self._used_counts)
            if used and self._class_bytes[slab] != class_bytes
        ]
        return sorted(
            slabs,
            key=lambda slab: (
                self._open_counts[slab],
                self._used_counts[slab] - self._loose_counts[slab],
            ),
        )

    def last_use(self, slab: int, place: int) -> int:
        """When a frame was used last: later uses have larger times, all above 0."""
        return int(self._times[slab][place])

    def to_empty(self, class_bytes: int, *, before: int | None = None) -> Iterator[int]:
        """Slabs of other classes that can be emptied, by their late use, the oldest first.

        Only those whose late use is before a time, if one is given. Nothing must change while
        the iterator is in use.
        """
        oldest = [
            (late_use_min, slab, False)
            for slab, late_use_min in enumerate(self._late_uses_min)
            if (before is None or late_use_min < before)
            and 0 < self._used_counts[slab] == self._loose_counts[slab]
            and self._class_bytes[slab] != class_bytes
        ]
        heapify(oldest)
        while oldest and (before is None or oldest[0][0] < before):
            _, slab, is_exact = oldest[0]
            if is_exact:
                heappop(oldest)
                yield slab
            else:
                times = self._times[slab]
                late = ceil(OLD_SHARE * len(times)) - 1
                self._late_uses_min[slab] = int(np.partition(times, late)[late])
                heapreplace(oldest, (self._late_uses_min[slab], slab, True))
