"""The protocol of an eviction policy."""

from collections.abc import Hashable, Iterator
from typing import Protocol, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class EvictionPolicy(Protocol[KeyT]):
    """Orders the keys of one tier by how soon they should go.

    Keys belong to groups (size classes), because room for one class is made fastest
    by evicting chunks of the same class. The owner serialises the calls.
    """

    def insert(self, key: KeyT, group: int) -> None:
        """Hears of a key that entered the tier."""

    def touch(self, key: KeyT, group: int) -> None:
        """Hears of a use; a key that is not in the tier is ignored."""

    def remove(self, key: KeyT, group: int) -> None:
        """Hears of a key that left the tier; one that is not there is ignored."""

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys of one group, or of all, the first to go first.

        The policy must not change while the iterator is in use.
        """
