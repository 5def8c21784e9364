"""The shares of both tiers, from what the configuration says of namespaces."""

from collections.abc import Sequence
from functools import partial

from kvstored.format.identity import ChunkId
from kvstored.store.space.chunk_table import ChunkTable
from kvstored.tiers.chunks.account_rows import AccountRows, bytes_of, bytes_of_all
from kvstored.tiers.chunks.nvme_victims import class_bytes_in
from kvstored.tiers.namespaces import NamespaceLimits
from kvstored.tiers.policy.protocol import EvictionPolicy
from kvstored.tiers.policy.retention import (
    Retention,
    TableRetention,
    make_retention,
    make_table_retention,
)
from kvstored.tiers.policy.shares import OTHERS, TierShares


def namespace_of(chunk: ChunkId) -> bytes:
    """The namespace of a chunk."""
    return chunk.namespace_id


def dram_shares(kind: Retention, namespaces: Sequence[NamespaceLimits]) -> TierShares[ChunkId]:
    """Of an empty DRAM tier."""
    return TierShares.divided(
        {one.namespace_id: one.dram for one in namespaces},
        lambda _: make_retention(kind),
        namespace_of,
    )


def device_shares(
    table: ChunkTable, kind: TableRetention, namespaces: Sequence[NamespaceLimits]
) -> TierShares[ChunkId]:
    """Of the devices, with the chunks of a table on them."""
    named = [one.namespace_id for one in namespaces]
    group_of = partial(class_bytes_in, table)

    def make(account: bytes) -> EvictionPolicy[ChunkId]:
        rows = AccountRows(table, account, named) if named else table
        return make_table_retention(kind, rows, group_of)

    shares: TierShares[ChunkId] = TierShares.divided(
        {one.namespace_id: one.devices for one in namespaces}, make, namespace_of
    )
    of_named = {name: bytes_of(table, name) for name in named}
    for name, byte_count in of_named.items():
        shares.use.add(name, byte_count)
    shares.use.add(OTHERS, bytes_of_all(table) - sum(of_named.values()))
    return shares
