"""Whose chunks make room: shares of a tier that namespaces are sure of, and limits."""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

NamespaceT = TypeVar("NamespaceT", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Of one namespace in one tier. ``guaranteed_bytes`` are nobody else's to take.

    It never has more than ``limit_bytes``, None for as much as there is.
    """

    guaranteed_bytes: int = 0
    limit_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.guaranteed_bytes < 0:
            raise ValueError("a guaranteed share is not below 0")
        if self.limit_bytes is not None and self.limit_bytes < self.guaranteed_bytes:
            raise ValueError("a limit is not below the guaranteed share")


GUARANTEED_MAX = 0.9
"""Part of a tier that may be guaranteed: the rest is what chunks leave of their slabs."""
NO_QUOTA = Quota()
"""Sure of nothing, and without a limit."""


@dataclass(frozen=True, slots=True)
class Quotas(Generic[NamespaceT]):
    """The quotas of all namespaces; those without one have ``NO_QUOTA``."""

    quotas: Mapping[NamespaceT, Quota]

    def of(self, namespace: NamespaceT) -> Quota:
        """The quota of a namespace."""
        return self.quotas.get(namespace, NO_QUOTA)

    def givers(
        self, used_bytes: Mapping[NamespaceT, int], taker: NamespaceT, wanted_bytes: int
    ) -> Iterator[NamespaceT]:
        """Namespaces whose victims may make room for ``taker``, the first to ask first.

        At its limit only ``taker`` itself gives. Else those above their guaranteed share, the
        furthest above first; then ``taker`` with what it has. Nobody else gives of its share.
        """
        limit = self.of(taker).limit_bytes
        taken_bytes = used_bytes.get(taker, 0)
        if limit is None or taken_bytes + wanted_bytes <= limit:
            above = {
                namespace: used - self.of(namespace).guaranteed_bytes
                for namespace, used in used_bytes.items()
                if used > self.of(namespace).guaranteed_bytes
            }
            yield from sorted(above, key=lambda namespace: -above[namespace])
            if taker in above:
                return
        if taken_bytes:
            yield taker

    def protected_bytes(self, namespace: NamespaceT, capacity_bytes: int) -> int:
        """How much hints of a namespace may keep: its limit; without one, what nobody else has.

        That is its guaranteed share and what nobody else is sure of. So hints for everything keep
        nobody else's share out.
        """
        others = (quota for name, quota in self.quotas.items() if name != namespace)
        free_bytes = max(0, capacity_bytes - sum(quota.guaranteed_bytes for quota in others))
        limit = self.of(namespace).limit_bytes
        return free_bytes if limit is None else min(limit, free_bytes)
