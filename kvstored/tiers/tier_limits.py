"""Sizes and policies that the tiers are built with."""

from dataclasses import dataclass

from kvstored.store.read.reader import ReaderLimits
from kvstored.store.write.committer import CommitLimits
from kvstored.tiers.namespaces import NamespaceLimits, lifetimes_of
from kvstored.tiers.policy.lifetimes import Lifetimes
from kvstored.tiers.policy.retention import Retention, TableRetention
from kvstored.tiers.scrub.scrub_pace import ScrubLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class TierLimits:
    """Sizes that are fixed when the daemon starts."""

    dram_bytes: int
    dram_slab_bytes: int
    commit: CommitLimits
    reader: ReaderLimits
    scrub: ScrubLimits | None = None
    """None turns it off."""
    dram_retention: Retention = Retention.LOOK_AHEAD_DENSITY
    device_retention: TableRetention = TableRetention.LOOK_AHEAD
    namespaces: tuple[NamespaceLimits, ...] = ()
    """Those that have limits, guaranteed shares or a time to live of their own."""
    ttl_s: float | None = None
    """After so long without a use chunks of all others go; None keeps them."""

    @property
    def lifetimes(self) -> Lifetimes:
        """How long chunks may be without a use."""
        return lifetimes_of(self.namespaces, self.ttl_s)
