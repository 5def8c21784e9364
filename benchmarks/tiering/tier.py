"""A tier that only counts bytes, and carries out what its policy says."""

from collections.abc import Hashable
from typing import Generic, TypeVar

from kvstored.tiers.policy.prefetch_plan import Watermarks
from kvstored.tiers.policy.protocol import EvictionPolicy

KeyT = TypeVar("KeyT", bound=Hashable)

FULL = Watermarks(low_bytes=0, high_bytes=0)
"""Room is made when there is none."""
GROUP = 0


class Tier(Generic[KeyT]):
    """Keys with their bytes. What does not fit goes at once, by ``marks``."""

    def __init__(
        self, policy: EvictionPolicy[KeyT], capacity_bytes: int, marks: Watermarks = FULL
    ) -> None:
        self.policy = policy
        self.capacity_bytes = capacity_bytes
        self._marks = marks
        self._bytes: dict[KeyT, int] = {}
        self._used_bytes = 0

    def __contains__(self, key: object) -> bool:
        """Whether a key is there."""
        return key in self._bytes

    def __len__(self) -> int:
        """Keys that are there."""
        return len(self._bytes)

    @property
    def mean_bytes(self) -> float:
        """Of all keys, 1 when there are none."""
        return self._used_bytes / len(self._bytes) if self._bytes else 1.0

    def size(self, key: KeyT) -> int:
        """Bytes of a key, 0 if it is not there."""
        return self._bytes.get(key, 0)

    def put(self, key: KeyT, byte_count: int) -> list[KeyT]:
        """Enters a key, or gives it another size; the keys that had to go, maybe itself."""
        self._used_bytes += byte_count - self.size(key)
        self._bytes[key] = byte_count
        self.policy.insert(key, GROUP)
        gone: list[KeyT] = []
        wanted = self._marks.bytes_to_free(self.capacity_bytes - self._used_bytes)
        while wanted > 0 and self._bytes:
            victim = next(self.policy.victims())
            wanted -= self._bytes[victim]
            self.drop(victim)
            gone.append(victim)
        return gone

    def drop(self, key: KeyT) -> None:
        """Takes a key out, if it is there."""
        byte_count = self._bytes.pop(key, None)
        if byte_count is not None:
            self._used_bytes -= byte_count
            self.policy.remove(key)
