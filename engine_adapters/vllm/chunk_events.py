"""Which chunks the store took or lost, for those who route requests by them. Pure."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

PENDING_MAX = 4096
"""Chunks on their way to the store of which the tokens are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChunk:
    """A chunk that the store has from now on.

    ``parent_key`` is empty for the first of a prefix, ``adapter_name`` without LoRA weights.
    """

    chain_key: bytes
    parent_key: bytes
    token_ids: tuple[int, ...]
    adapter_name: str = ""


@dataclass(frozen=True, slots=True)
class LostChunk:
    """A chunk that the store had and does not have any more."""

    chain_key: bytes


ChunkEvent = StoredChunk | LostChunk


class ChunkEvents:
    """Collects events in the order in which they became known. Not thread-safe.

    A chunk is stored when all of ``worker_count`` workers have stored their part of it.
    """

    def __init__(self, worker_count: int) -> None:
        self._worker_count = worker_count
        self._pending: OrderedDict[bytes, StoredChunk] = OrderedDict()
        self._ranks: dict[bytes, set[int]] = {}
        self._events: list[ChunkEvent] = []

    def ordered(
        self,
        chain_keys: Sequence[bytes],
        parent_key: bytes,
        token_ids: Sequence[int],
        *,
        adapter_name: str = "",
    ) -> None:
        """Consecutive chunks of ``token_ids`` are being saved."""
        size = len(token_ids) // len(chain_keys)
        parents = (parent_key, *chain_keys)
        for index, (key, parent) in enumerate(zip(chain_keys, parents, strict=False)):
            self._pending[key] = StoredChunk(
                chain_key=key,
                parent_key=parent,
                token_ids=tuple(token_ids[index * size : (index + 1) * size]),
                adapter_name=adapter_name,
            )
            self._ranks.setdefault(key, set())
        while len(self._pending) > PENDING_MAX:
            forgotten, _ = self._pending.popitem(last=False)
            del self._ranks[forgotten]

    def stored(self, chain_keys: Sequence[bytes], *, rank: int) -> None:
        """A worker has stored its part of each chunk; one that is not remembered is left out."""
        for key in chain_keys:
            if key not in self._pending:
                continue
            self._ranks[key].add(rank)
            if len(self._ranks[key]) == self._worker_count:
                del self._ranks[key]
                self._events.append(self._pending.pop(key))

    def lost(self, chain_key: bytes) -> None:
        """A chunk was found and did not come."""
        self._events.append(LostChunk(chain_key))

    def take(self) -> list[ChunkEvent]:
        """Everything since the last call."""
        if not self._events:
            return []
        events, self._events = self._events, []
        return events
