"""The policies that a tier can be configured with, by name."""

from collections.abc import Callable, Hashable
from enum import Enum
from typing import TypeVar

from kvstored.format.identity import ChunkId
from kvstored.tiers.policy.fifo import FifoPolicy
from kvstored.tiers.policy.hit_density import HitDensityPolicy
from kvstored.tiers.policy.look_ahead import LookAheadPolicy
from kvstored.tiers.policy.lru import LruPolicy
from kvstored.tiers.policy.protocol import EvictionPolicy
from kvstored.tiers.policy.s3_fifo import S3FifoPolicy
from kvstored.tiers.policy.table_lru import TableLookAhead, TableLru, UsedChunks

KeyT = TypeVar("KeyT", bound=Hashable)


class Retention(Enum):
    """How DRAM chooses what goes.

    ``LOOK_AHEAD`` is AttentionStore's, over LRU; ``LOOK_AHEAD_DENSITY`` is the same over the
    density of hits. All others ignore hints.
    """

    FIFO = "fifo"
    LRU = "lru"
    S3_FIFO = "s3-fifo"
    DENSITY = "density"
    LOOK_AHEAD = "look-ahead"
    LOOK_AHEAD_DENSITY = "look-ahead-density"


class TableRetention(Enum):
    """How the devices choose: with memory for hinted chunks only, ten million are too many."""

    LRU = "lru"
    LOOK_AHEAD = "look-ahead"


def make_retention(kind: Retention) -> EvictionPolicy[KeyT]:
    """A new policy without keys."""
    makers: dict[Retention, Callable[[], EvictionPolicy[KeyT]]] = {
        Retention.FIFO: FifoPolicy,
        Retention.LRU: LruPolicy,
        Retention.S3_FIFO: S3FifoPolicy,
        Retention.DENSITY: HitDensityPolicy,
        Retention.LOOK_AHEAD: lambda: LookAheadPolicy(LruPolicy()),
        Retention.LOOK_AHEAD_DENSITY: lambda: LookAheadPolicy(HitDensityPolicy()),
    }
    return makers[kind]()


def make_table_retention(
    kind: TableRetention, table: UsedChunks, group_of: Callable[[ChunkId], int | None]
) -> EvictionPolicy[ChunkId]:
    """A new policy for the chunks of a table, which ``group_of`` knows the groups of."""
    if kind is TableRetention.LRU:
        return TableLru(table)
    return TableLookAhead(table, group_of)
