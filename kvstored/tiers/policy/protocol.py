"""The protocol of an eviction policy: the same for DRAM, for the devices and for simulations."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
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

    def touch(self, keys: Sequence[KeyT], *, together: bool = False) -> None:
        """Hears that keys are used, one after the other; ignores those that are not there.

        With ``together`` a sequence uses them, in its order: they are a *bundle* from now on. A
        policy by sequence gives a bundle up as a whole, the last key first, and takes a use of
        one of its keys for one of all. Where the first of ``keys`` is the last of its bundle, the
        others follow it there. A policy by chunk ignores that.
        """

    def remove(self, key: KeyT) -> None:
        """Hears of a key that left the tier; one that is not there is ignored."""

    def hint(self, places: Mapping[KeyT, int | None]) -> None:
        """Hears which keys have another place in the queue of waiting requests than before.

        The smaller a place, the sooner the key is used; None is for those that wait no longer.
        Places need not follow each other, so nobody moves when the head leaves. A key may be
        queued before it enters the tier, or after it left. A policy may ignore all of it.
        """

    def is_queued(self, key: KeyT) -> bool:
        """Whether hints keep a key: what goes without being asked for should not take it."""

    def victims(self, group: int | None = None) -> Iterator[KeyT]:
        """Keys of one group, or of all, the first to go first.

        Nothing of the tier may change while the iterator is in use.
        """
