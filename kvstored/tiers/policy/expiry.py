"""What was not used for too long."""

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class Expiry(Generic[KeyT]):
    """Keys whose last use is longer ago than ``ttl_s``. The owner passes the time in.

    Times never fall. Every call takes constant time for each key that it uses or yields.
    """

    def __init__(self, ttl_s: float) -> None:
        if ttl_s <= 0:
            raise ValueError("a time to live is above 0")
        self._ttl_s = ttl_s
        self._used_s: OrderedDict[KeyT, float] = OrderedDict()

    def __len__(self) -> int:
        """Keys that are known."""
        return len(self._used_s)

    def use(self, key: KeyT, now_s: float) -> None:
        """Hears that a key is used, or enters."""
        self._used_s[key] = now_s
        self._used_s.move_to_end(key)

    def remove(self, key: KeyT) -> None:
        """Forgets a key, if it is known."""
        self._used_s.pop(key, None)

    def next_s(self) -> float | None:
        """When the next key expires, None without keys."""
        first = next(iter(self._used_s.values()), None)
        return None if first is None else first + self._ttl_s

    def has_expired(self, key: KeyT, now_s: float) -> bool:
        """Whether a key is known and has expired."""
        used_s = self._used_s.get(key)
        return used_s is not None and now_s - used_s >= self._ttl_s

    def expired(self, now_s: float) -> Iterator[KeyT]:
        """Keys that have expired, the oldest first. They stay until the owner removes them.

        Nothing may change while the iterator is in use.
        """
        for key, used_s in self._used_s.items():
            if now_s - used_s < self._ttl_s:
                return
            yield key
