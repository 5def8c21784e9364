"""Restoring into the processes that together run one model (HCache, section 5).

What to import if you run a model in several processes: a ``ParallelRestorer`` in each, with the
``ModelShard`` that falls to it and its ``RankGroups``.

In reading order: what falls to one process (``model_shard``), a look-up that waits for no silent
store (``bounded_match``), calls that all make (``collective_calls``) and by which they bring
together what they read (``share_gathering``), and the restoration (``parallel_restorer``).
"""

from engine_adapters.runner.ranks.model_shard import ModelShard
from engine_adapters.runner.ranks.parallel_restorer import (
    ParallelOptions,
    ParallelRestorer,
    RankGroups,
)

__all__ = ["ModelShard", "ParallelOptions", "ParallelRestorer", "RankGroups"]
