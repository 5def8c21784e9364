"""How full namespaces are, measured by what they may have."""

from collections.abc import Sequence

from kvstored.tiers.chunks.dram import DramTier
from kvstored.tiers.chunks.nvme_room import NvmeRoom
from kvstored.tiers.chunks.status import NamespaceStatus
from kvstored.tiers.namespaces import NamespaceLimits
from kvstored.tiers.policy.shares import OTHERS


def namespace_statuses(
    namespaces: Sequence[NamespaceLimits], ttl_s: float | None, dram: DramTier, room: NvmeRoom
) -> tuple[NamespaceStatus, ...]:
    """Each namespace with a quota, in the order of the configuration, and all others together.

    ``ttl_s`` is that of all others.
    """
    accounts = [(one.namespace_id, one) for one in namespaces]
    return tuple(
        NamespaceStatus(
            name=limits.name,
            dram_used_bytes=dram.shares.use.used_bytes(account),
            dram_guaranteed_bytes=limits.dram.guaranteed_bytes,
            dram_limit_bytes=limits.dram.limit_bytes or 0,
            device_used_bytes=room.shares.use.used_bytes(account),
            device_guaranteed_bytes=limits.devices.guaranteed_bytes,
            device_limit_bytes=limits.devices.limit_bytes or 0,
            ttl_s=limits.ttl_s or ttl_s or 0.0,
        )
        for account, limits in [*accounts, (OTHERS, NamespaceLimits(name=""))]
    )
