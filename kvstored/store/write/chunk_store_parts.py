"""What a chunk store is made of."""

from dataclasses import dataclass

from kvstored.counters import Counters
from kvstored.io.engine import IoEngine
from kvstored.store.index.index import Index
from kvstored.store.space.allocator import Allocator
from kvstored.store.space.device_set import DeviceSet
from kvstored.store.write.committer import CommitLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkStoreParts:
    """What a chunk store is made of, opened and recovered."""

    device_set: DeviceSet
    index: Index
    allocator: Allocator
    engine: IoEngine
    commit_limits: CommitLimits
    next_stamp: int
    counters: Counters
