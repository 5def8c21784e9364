"""Where the states of one history go."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine_adapters.runner.model.kv_cache import KvCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Slots of the cache from ``first_slot`` on, and positions from ``first_position`` on.

    ``token_ids`` are those of the request; its last token is never restored.
    """

    token_ids: Sequence[int]
    cache: KvCache
    first_slot: int
    first_position: int = 0
