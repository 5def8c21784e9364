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
    """The last one of a key in the tier, and the gap that follows as far as is known."""

    group: int
    at: int
    gap: float | None
    gone_at: float


class PredictedReturnPolicy(Generic[KeyT]):
    """Implements ``EvictionPolicy`` without hints. Its clock counts the uses of all keys.

    A key is expected back after the mean of its gaps, or of all keys' while it has none. What is
    late by ``LATE_GAPS`` goes first, the latest before others, and then what is expected last.
    Before any key was used twice the order is that of the last uses.
    """

    def __init__(self) -> None:
        self._uses: dict[KeyT, _Use] = {}
        self._expected: RankedKeys[KeyT] = RankedKeys()
        self._gone: RankedKeys[KeyT] = RankedKeys()
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
            self._expected.take(key)
            self._gone.take(key)

    def hint(self, places: Mapping[KeyT, int | None]) -> None:
        """Does nothing; ``LookAheadPolicy`` over this one keeps what waits."""

    def is_queued(self, key: KeyT) -> bool:
        """Whether hints keep a key: none does."""
        _ = key
        return False

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """What does not return, the earliest gone first; then what is expected last."""
        for key in self._gone.keys(group):
            if self._uses[key].gone_at > self._now:
                break
            yield key
        for key in self._expected.keys(group):
            if self._uses[key].gone_at > self._now:
                yield key

    def _enter(self, key: KeyT, group: int, gap: float | None) -> None:
        self._now += 1
        mean = self._gaps_sum / self._gaps_count if self._gaps_count else inf
        awaited = mean if gap is None else gap
        gone_at = self._now + LATE_GAPS * awaited
        self._uses[key] = _Use(group, self._now, gap, gone_at)
        self._expected.put(key, group, self._now + awaited)
        self._gone.put(key, group, -gone_at)
