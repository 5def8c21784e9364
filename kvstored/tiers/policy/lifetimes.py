"""How long what nobody uses may stay, by namespace; and which uses are too long ago.

The owner passes the time in: seconds that never fall. It serialises the calls.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, TypeVar

from kvstored.tiers.policy.expiry import Expiry

KeyT = TypeVar("KeyT", bound=Hashable)

LOOKS_PER_TTL = 64
"""An owner looks so often while a time to live passes: nothing stays longer by more than that."""
LOOK_S_MAX = 30.0
"""The longest time from one look to the next."""
MARKS_PER_TTL = 4096
"""Marks that are kept while a time to live passes, beside shorter ones that ask for more looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """Seconds without a use after which chunks go: of some namespaces, and of all others.

    None is for ever.
    """

    default_s: float | None = None
    by_namespace: Mapping[bytes, float | None] = field(default_factory=dict)

    def of(self, namespace: bytes) -> float | None:
        """Of a namespace."""
        return self.by_namespace.get(namespace, self.default_s)

    @property
    def all_s(self) -> set[float]:
        """The times that there are."""
        return {
            ttl_s for ttl_s in (self.default_s, *self.by_namespace.values()) if ttl_s is not None
        }

    @property
    def look_s(self) -> float:
        """From one look to the next, where anything expires."""
        return min(LOOK_S_MAX, min(self.all_s) / LOOKS_PER_TTL)


class KeyAges(Generic[KeyT]):
    """Keys with the time of their last use: memory for each, constant time for a use."""

    def __init__(self, lifetimes: Lifetimes, namespace_of: Callable[[KeyT], bytes]) -> None:
        self._lifetimes = lifetimes
        self._namespace_of = namespace_of
        self._ages: dict[float, Expiry[KeyT]] = {ttl_s: Expiry(ttl_s) for ttl_s in lifetimes.all_s}

    def use(self, key: KeyT, now_s: float) -> None:
        """Hears that a key is used, or enters."""
        if (ages := self._of(key)) is not None:
            ages.use(key, now_s)

    def remove(self, key: KeyT) -> None:
        """Forgets a key, if it is known."""
        if (ages := self._of(key)) is not None:
            ages.remove(key)

    def has_expired(self, key: KeyT, now_s: float) -> bool:
        """Whether a key is known, and its last use too long ago."""
        ages = self._of(key)
        return ages is not None and ages.has_expired(key, now_s)

    def expired(self, now_s: float) -> Iterator[KeyT]:
        """Keys that have expired. Nothing may change while the iterator is in use."""
        return chain.from_iterable(ages.expired(now_s) for ages in self._ages.values())

    def _of(self, key: KeyT) -> Expiry[KeyT] | None:
        ttl_s = self._lifetimes.of(self._namespace_of(key))
        return None if ttl_s is None else self._ages[ttl_s]


class UseMarks:
    """Which uses of a clock are too long ago, for more keys than could be remembered.

    The clock counts uses, and every key has the count of its last one. Each look marks how far the
    clock is. When a mark expires, so has every key whose last use was before it. ``of`` tells
    that count for a namespace: 0 while nothing has expired.
    """

    def __init__(self, lifetimes: Lifetimes) -> None:
        self._lifetimes = lifetimes
        self._marks: dict[float, Expiry[int]] = {ttl_s: Expiry(ttl_s) for ttl_s in lifetimes.all_s}
        self._before = dict.fromkeys(lifetimes.all_s, 0)
        self._marked = dict.fromkeys(lifetimes.all_s, (0, -math.inf))
        """The last mark, and when it was made."""

    def look(self, clock: int, now_s: float) -> None:
        """Marks that the uses before ``clock``, the next one's count, were before now."""
        for ttl_s, marks in self._marks.items():
            marked, marked_s = self._marked[ttl_s]
            # A mark is as old as its first look: no use came since.
            if clock > marked and now_s - marked_s >= ttl_s / MARKS_PER_TTL:
                marks.use(clock, now_s)
                self._marked[ttl_s] = clock, now_s
            for mark in tuple(marks.expired(now_s)):
                marks.remove(mark)
                self._before[ttl_s] = mark

    def of(self, namespace: bytes) -> int:
        """Keys of a namespace whose last use has a count below this have expired."""
        ttl_s = self._lifetimes.of(namespace)
        return 0 if ttl_s is None else self._before[ttl_s]

    def named(self) -> Iterable[tuple[bytes, int]]:
        """Of the namespaces that have a time of their own."""
        return [(namespace, self.of(namespace)) for namespace in self._lifetimes.by_namespace]

    @property
    def default(self) -> int:
        """Of all others."""
        default_s = self._lifetimes.default_s
        return 0 if default_s is None else self._before[default_s]
