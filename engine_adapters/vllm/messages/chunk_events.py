"""Which blocks a router should know to be in the store, from what the store tells. Pure."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from engine_adapters.vllm.messages.chunk_note import ChunkNote

CHUNKS_MAX = 131_072
"""Chunks that are watched: none is announced whose end nobody would hear of."""
HASHES_PER_EVENT_MAX = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBlocks:
    """Consecutive blocks that the store has from now on.

    ``parent_hash`` is that of the block before, empty for the first of a prefix,
    ``adapter_name`` empty without LoRA weights.
    """

    block_hashes: tuple[bytes, ...]
    parent_hash: bytes
    token_ids: tuple[int, ...]
    adapter_name: str = ""


@dataclass(frozen=True, slots=True)
class RemovedBlocks:
    """Announced blocks that the store does not have any more."""

    block_hashes: tuple[bytes, ...]


BlockEvent = StoredBlocks | RemovedBlocks


@dataclass(slots=True)
class _Watched:
    """One chunk: the keys of its parts that are not stored, and its hashes once announced."""

    keys: tuple[bytes, ...]
    missing: set[bytes]
    told_hashes: tuple[bytes, ...] = field(default=())


class ChunkEvents:
    """Turns changes of single keys into events of blocks. Not thread-safe.

    ``rank_keys`` gives the keys under which the parts of a chunk are stored, one for each worker.
    Invariants: a chunk is announced while all its parts are stored, as far as this has heard, and
    never before the one in front of it; every announced chunk is watched.
    """

    def __init__(
        self, rank_keys: Callable[[bytes], tuple[bytes, ...]], *, chunks_max: int = CHUNKS_MAX
    ) -> None:
        self._rank_keys = rank_keys
        self._chunks_max = chunks_max
        self._adapters: dict[bytes, str] = {}
        self._watched: OrderedDict[bytes, _Watched] = OrderedDict()
        self._chain_of: dict[bytes, bytes] = {}
        self._events: list[BlockEvent] = []

    def know(self, scope: bytes, adapter_name: str) -> None:
        """Chunks of this scope help requests of that LoRA adapter (empty: of none)."""
        self._adapters[scope] = adapter_name

    def is_told(self, chain_key: bytes) -> bool:
        """Whether the blocks of a chunk are known to be stored."""
        watched = self._watched.get(chain_key)
        return watched is not None and bool(watched.told_hashes)

    @property
    def keys(self) -> list[bytes]:
        """Keys of all parts that are watched."""
        return list(self._chain_of)

    def stored(self, key: bytes, note: ChunkNote) -> None:
        """A part of a chunk is stored; what this engine could not use is left out."""
        rank_keys = self._rank_keys(note.chain_key) if note.scope in self._adapters else ()
        if key not in rank_keys:
            return
        watched = self._watched.get(note.chain_key)
        if watched is None:
            watched = self._watch(note.chain_key, rank_keys)
        watched.missing.discard(key)
        if not (watched.missing or watched.told_hashes):
            self._tell(watched, note)

    def removed(self, key: bytes) -> None:
        """A part of a chunk is not stored any more."""
        chain_key = self._chain_of.get(key)
        if chain_key is None:
            return
        watched = self._watched[chain_key]
        watched.missing.add(key)
        if watched.told_hashes:
            self._events.append(RemovedBlocks(watched.told_hashes))
            watched.told_hashes = ()
        if len(watched.missing) == len(watched.keys):
            self._forget(chain_key)

    def withdraw(self) -> None:
        """Nothing is known of any chunk: all announcements are taken back."""
        hashes = [
            block_hash for watched in self._watched.values() for block_hash in watched.told_hashes
        ]
        self._events += _removals(hashes)
        self._watched.clear()
        self._chain_of.clear()

    def take(self) -> list[BlockEvent]:
        """Everything since the last call, in order."""
        events, self._events = self._events, []
        return events

    def _tell(self, watched: _Watched, note: ChunkNote) -> None:
        parent_hash = b""
        if note.parent_key:
            parent = self._watched.get(note.parent_key)
            if parent is None or not parent.told_hashes:
                # A router would not know where it belongs. A look-up finds it with its parent.
                self._forget(note.chain_key)
                return
            parent_hash = parent.told_hashes[-1]
        watched.told_hashes = note.block_hashes
        self._events.append(
            StoredBlocks(
                block_hashes=note.block_hashes,
                parent_hash=parent_hash,
                token_ids=note.token_ids,
                adapter_name=self._adapters[note.scope],
            )
        )

    def _watch(self, chain_key: bytes, rank_keys: tuple[bytes, ...]) -> _Watched:
        while len(self._watched) >= self._chunks_max:
            oldest = next(iter(self._watched))
            self._events += _removals(self._watched[oldest].told_hashes)
            self._forget(oldest)
        watched = self._watched[chain_key] = _Watched(rank_keys, set(rank_keys))
        self._chain_of.update(dict.fromkeys(rank_keys, chain_key))
        return watched

    def _forget(self, chain_key: bytes) -> None:
        for key in self._watched.pop(chain_key).keys:
            del self._chain_of[key]


def _removals(hashes: Sequence[bytes]) -> Iterable[RemovedBlocks]:
    for first in range(0, len(hashes), HASHES_PER_EVENT_MAX):
        yield RemovedBlocks(tuple(hashes[first : first + HASHES_PER_EVENT_MAX]))
