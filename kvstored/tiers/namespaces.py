"""What the tiers are asked to let a namespace have."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvstored.format.identity import namespace_id
from kvstored.tiers.policy.lifetimes import Lifetimes
from kvstored.tiers.policy.shares import NO_QUOTA, Quota


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceLimits:
    """Of one namespace. ``ttl_s`` is what its chunks may be without a use; None: as all others."""

    name: str
    dram: Quota = NO_QUOTA
    devices: Quota = NO_QUOTA
    ttl_s: float | None = None

    @property
    def namespace_id(self) -> bytes:
        """Under which its chunks are."""
        return namespace_id(self.name)


def lifetimes_of(namespaces: Sequence[NamespaceLimits], default_s: float | None) -> Lifetimes:
    """How long chunks may be without a use; ``default_s`` where a namespace says nothing."""
    return Lifetimes(
        default_s=default_s,
        by_namespace={one.namespace_id: one.ttl_s for one in namespaces if one.ttl_s is not None},
    )
