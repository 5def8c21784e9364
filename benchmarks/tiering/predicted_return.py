"""Evicts what is expected back last, by the gaps between its uses so far.

Bidaw (FAST 2026) predicts when a conversation returns from those and from the length of its last
reply. Neither the generated conversations nor the traces relate a reply to what follows, so the
gaps are all that is left of it here.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Generic, TypeVar

from kvstored.tiers.policy.ranked_keys import RankedKeys

KeyT = TypeVar("KeyT", bound=Hashable)

LATE_GAPS = 3.0
"""A key that is not back after so many gaps does not return: of exponential ones 5 % are longer."""
NEWEST_SHARE = 0.5
"""Weight of a key's last gap in its mean."""


@dataclass(frozen=True, slots=True)
class _Use:
    """The last one of a key in the tier, the mean gap before it, and what is expected of it."""

    group: int
    at: int
    gap: float | None
    back_at: float
    gone_at: float


class PredictedReturnPolicy(Generic[KeyT]):
    """Implements ``EvictionPolicy``. Its clock counts the uses of all keys.

    A key is expected back after the mean of its gaps; while it has none, after that of all keys as
    it is at the key's use, which is endless before any key came back. What is late by
    ``LATE_GAPS`` goes first, the latest before others, and then what is expected last. Queued keys
    stay until all others are gone, as in ``LookAheadPolicy``; waiting is no use, so gaps last until
    a key is used.
    """

    def __init__(self) -> None:
        self._uses: dict[KeyT, _Use] = {}
        self._expected: RankedKeys[KeyT] = RankedKeys()
        self._gone: RankedKeys[KeyT] = RankedKeys()
        self._queued: RankedKeys[KeyT] = RankedKeys()
        self._places: dict[KeyT, int] = {}
        self._now = 0
        self._gaps_sum = self._gaps_count = 0

    def insert(self, key: KeyT, group: int) -> None:
        """Enters a key; in another group it keeps its gap."""
        before = self._uses.get(key)
        self._enter(key, group, None if before is None else before.gap)

    def touch(self, keys: Sequence[KeyT], *, together: bool = False) -> None:
        """Learns the gaps of keys of the tier, each by itself."""
        if together:
            return
        for key in keys:
            if (use := self._uses.get(key)) is None:
                continue
            gap = self._now + 1 - use.at
            self._gaps_sum += gap
            self._gaps_count += 1
            mean = gap if use.gap is None else use.gap + NEWEST_SHARE * (gap - use.gap)
            self._enter(key, use.group, mean)

    def remove(self, key: KeyT) -> None:
        """Forgets a key, if it is in the tier, and its gaps."""
        if self._uses.pop(key, None) is not None:
            self._take(key)

    def hint(self, places: Mapping[KeyT, int | None]) -> None:
        """Queues keys, or moves them, or expects them as at their last use."""
        for key, place in places.items():
            if place is None:
                self._places.pop(key, None)
            else:
                self._places[key] = place
            if (use := self._uses.get(key)) is not None:
                self._put(key, use)

    def is_queued(self, key: KeyT) -> bool:
        """Whether hints keep a key."""
        return key in self._places

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """What does not return, then what is expected last, then what waits longest."""
        for key in self._gone.keys(group):
            if self._uses[key].gone_at > self._now:
                break
            yield key
        for key in self._expected.keys(group):
            if self._uses[key].gone_at > self._now:
                yield key
        yield from self._queued.keys(group)

    def _enter(self, key: KeyT, group: int, gap: float | None) -> None:
        self._now += 1
        mean = self._gaps_sum / self._gaps_count if self._gaps_count else inf
        awaited = mean if gap is None else gap
        back_at, gone_at = self._now + awaited, self._now + LATE_GAPS * awaited
        use = self._uses[key] = _Use(group, self._now, gap, back_at, gone_at)
        self._put(key, use)

    def _put(self, key: KeyT, use: _Use) -> None:
        self._take(key)
        if (place := self._places.get(key)) is not None:
            self._queued.put(key, use.group, place)
        else:
            self._expected.put(key, use.group, use.back_at)
            self._gone.put(key, use.group, -use.gone_at)

    def _take(self, key: KeyT) -> None:
        for keys in (self._expected, self._gone, self._queued):
            keys.take(key)
