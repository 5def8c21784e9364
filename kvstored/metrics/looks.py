"""What monitoring sees of a daemon that serves, looked up on a thread of its own.

Others of the daemon's threads may all be busy for seconds, with arenas in the making: what
monitoring asks must not wait for them.
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

from kvstored.format.identity import namespace_id
from kvstored.metrics.snapshot import HotRow, Snapshot
from kvstored.server.access import DEFAULT_NAMESPACE, AccessRules
from kvstored.server.server import Server
from kvstored.store.index.failure import IndexFailure
from kvstored.tiers.tiered_store import TieredStore
from kvstored.tiers.upkeep.hottest import HotSequence


class Looks:
    """Looks at a store and its server. Belongs to the daemon's event loop."""

    def __init__(self, store: TieredStore, server: Server, rules: AccessRules) -> None:
        self._store = store
        self._server = server
        self._rules = rules
        self._began_s = time.monotonic()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kvstored-look")

    async def snapshot(self) -> Snapshot:
        """Everything of now."""
        loop = asyncio.get_running_loop()
        stats = await loop.run_in_executor(self._thread, self._store.inspection.stats)
        connections = self._server.connections
        ended = {"ended_connections": connections.ended_count}
        return Snapshot(
            stats=replace(stats, counters={**stats.counters, **ended}),
            usage={
                **asdict(self._server.usage()),
                "grpc_connection_count": connections.count,
            },
            times=self._server.latencies.times(),
            uptime_s=time.monotonic() - self._began_s,
            is_drained=not self._server.intake.is_open,
        )

    async def hottest(self, count: int) -> tuple[HotRow, ...]:
        """Up to ``count`` sequences that are read most. Goes through many entries of the index."""
        try:
            # Not on the thread of the others: they need not wait for this.
            found = await asyncio.to_thread(self._store.upkeep.hottest, count)
        except IndexFailure:
            return ()
        return hot_rows(found, self._rules)

    def close(self) -> None:
        """Ends the thread when the look under way is over; nobody may look any more."""
        self._thread.shutdown()


def hot_rows(found: Sequence[HotSequence], rules: AccessRules) -> tuple[HotRow, ...]:
    """Sequences with the names of their namespaces, where the configuration has them."""
    known = {DEFAULT_NAMESPACE, *(tenant.namespace for tenant in rules.tenants)}
    names = {namespace_id(name): name for name in known}
    return tuple(
        HotRow(
            namespace=names.get(one.namespace_id, one.namespace_id.hex()[:12]),
            name=one.name,
            chunk_count=one.chunk_count,
            dram_chunk_count=one.dram_chunk_count,
            reads=one.reads,
        )
        for one in found
    )
