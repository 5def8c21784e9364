"""Which pieces of a history a store has, and the lease that keeps them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from engine_adapters.reading.piece import Piece, pieces_of
from kvstored_client import Client, Lease, StateLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPieces:
    """``pieces`` of a history in the order of its tokens, and whether each ``is_stored``.

    Those that are stay until ``lease`` is released, where there is one.
    """

    pieces: tuple[Piece, ...]
    is_stored: tuple[bool, ...]
    lease: Lease | None = None

    @property
    def prefix_chunks(self) -> int:
        """Leading pieces that are stored."""
        return sum(1 for _ in takewhile(bool, self.is_stored))


Finder = Callable[[], StoredPieces]
"""Asks the store; a reader calls it once, where it makes all its calls."""


def known(pieces: Sequence[Piece]) -> Finder:
    """Pieces that are known to be stored, and that somebody else keeps."""
    return lambda: StoredPieces(pieces=tuple(pieces), is_stored=(True,) * len(pieces))


def pinned(
    client: Client, layout: StateLayout, token_ids: Sequence[int], *, lease_ms: int
) -> Finder:
    """The complete chunks of ``token_ids``: each that is stored is kept."""
    token_ids = tuple(token_ids)

    def find() -> StoredPieces:
        keys = client.prefix_keys(layout, token_ids)
        pieces = pieces_of(keys, chunk_tokens=layout.chunk_tokens)
        lease = client.pin(layout, keys, lease_ms=lease_ms) if keys else None
        is_stored = (False,) * len(keys) if lease is None else lease.is_pinned
        return StoredPieces(pieces=pieces, is_stored=is_stored, lease=lease)

    return find
