"""The protocol of an eviction policy: the same for DRAM and for the devices."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Protocol, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)


class EvictionPolicy(Protocol[KeyT]):
    """Orders the keys of one tier by how soon they should go.

    Keys belong to groups (size classes), because room for one class is made fastest
    by evicting chunks of the same class. The tier enters a key in its own tables, or takes it
    out there, before it tells the policy; what is in the tier before there is a policy, that
    one knows from these tables. The owner serialises the calls.
    """

    def insert(self, key: KeyT, group: int) -> None:
        """Hears of a key that entered the tier, or moved to another group; that is a use."""

    def touch(self, keys: Sequence[KeyT]) -> None:
        """Hears that keys are used, one after the other; ignores those that are not there."""

    def remove(self, key: KeyT) -> None:
        """Hears of a key that left the tier; one that is not there is ignored."""

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys of one group, or of all, the first to go first.

        Nothing of the tier may change while the iterator is in use.
        """
