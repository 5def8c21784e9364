"""The policies that are compared, by name."""

from collections.abc import Hashable
from enum import Enum
from typing import TypeVar

from benchmarks.tiering.belady import BeladyPolicy
from benchmarks.tiering.future import Future
from benchmarks.tiering.predicted_return import PredictedReturnPolicy
from kvstored.tiers.policy.fifo import FifoPolicy
from kvstored.tiers.policy.hit_density import HitDensityPolicy
from kvstored.tiers.policy.look_ahead import LookAheadPolicy
from kvstored.tiers.policy.lru import LruPolicy
from kvstored.tiers.policy.protocol import EvictionPolicy
from kvstored.tiers.policy.s3_fifo import S3FifoPolicy

KeyT = TypeVar("KeyT", bound=Hashable)

HINTS_MAX = 4096
"""Waiting requests that an engine names."""


class PolicyName(Enum):
    """``LOOK_AHEAD`` is the paper's, over LRU; ``OURS`` is the same over the density of hits.

    ``RETURN`` keeps what waits in the same way, and the rest by its predicted return.
    """

    FIFO = "fifo"
    LRU = "lru"
    S3_FIFO = "s3-fifo"
    DENSITY = "hit density"
    LOOK_AHEAD = "look-ahead"
    OURS = "ours"
    RETURN = "predicted return"
    BELADY = "belady"

    @property
    def is_hinted(self) -> bool:
        """Whether it knows who waits, and chunks are fetched ahead for those."""
        return self in {PolicyName.LOOK_AHEAD, PolicyName.OURS, PolicyName.RETURN}


OTHERS = (PolicyName.FIFO, PolicyName.LRU, PolicyName.S3_FIFO)
"""What ours must not be below."""


ONLY_SIMULATED = (PolicyName.RETURN, PolicyName.BELADY)
"""What no daemon has."""


def make_policy(name: PolicyName, future: Future[KeyT]) -> EvictionPolicy[KeyT]:
    """A new policy; only Belady's looks into the future."""
    match name:
        case PolicyName.FIFO:
            return FifoPolicy()
        case PolicyName.LRU:
            return LruPolicy()
        case PolicyName.S3_FIFO:
            return S3FifoPolicy()
        case PolicyName.DENSITY:
            return HitDensityPolicy()
        case PolicyName.LOOK_AHEAD:
            return LookAheadPolicy(LruPolicy())
        case PolicyName.OURS:
            return LookAheadPolicy(HitDensityPolicy())
        case PolicyName.RETURN:
            return PredictedReturnPolicy()
        case PolicyName.BELADY:
            return BeladyPolicy(future.next_use)
