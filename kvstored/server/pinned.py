"""Looking the chunks of a call up, and pinning them: nobody waits long for that meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvstored.format.identity import ChunkId
from kvstored.tiers.tiered_store import TieredStore
from kvstored.turnstile import TURNSTILE


@dataclass(frozen=True, slots=True)
class Pinned:
    """What became of keys that were to be pinned: the chunks, and of each key whether it is."""

    chunks: tuple[ChunkId, ...]
    are_pinned: list[bool]

    @property
    def prefix_length(self) -> int:
        """How many of the first keys are pinned."""
        return next(
            (index for index, is_pinned in enumerate(self.are_pinned) if not is_pinned),
            len(self.are_pinned),
        )


def pinned_chunks(store: TieredStore, namespace_id: bytes, keys: Sequence[bytes]) -> Pinned:
    """Pins those of the chunks that are stored, part after part, as others use the store too.

    Where one part raises, nothing stays pinned of those before it.
    """
    chunks: list[ChunkId] = []
    are_pinned: list[bool] = []
    try:
        for part in TURNSTILE.parts(keys):
            pinned = store.pin(namespace_id, part)
            present = {chunk.key for chunk in pinned}
            chunks += pinned
            are_pinned += [key in present for key in part]
    except BaseException:
        # The caller hears of none, so that it could return none.
        for taken in TURNSTILE.parts(chunks):
            store.unpin(taken)
        raise
    return Pinned(tuple(chunks), are_pinned)


def matched_chunks(store: TieredStore, namespace_id: bytes, keys: Sequence[bytes]) -> int:
    """Length of the longest prefix of the keys that could be read now."""
    matched = 0
    for part in TURNSTILE.parts(keys):
        found = store.match(namespace_id, part)
        matched += found
        if found < len(part):
            break
    return matched
