"""Where in a sequence the tokens of a stored chunk stand. Pure."""

from collections.abc import Sequence
from typing import NamedTuple


class Piece(NamedTuple):
    """A chunk of the store: its key, and the tokens whose states it holds.

    Pieces of one read need not follow each other in the sequence, and each may have fewer
    tokens than the layout's chunks.
    """

    key: bytes
    first_position: int
    token_count: int

    @property
    def stop_position(self) -> int:
        """The position after its last token."""
        return self.first_position + self.token_count


def pieces_of(keys: Sequence[bytes], *, chunk_tokens: int) -> tuple[Piece, ...]:
    """Complete chunks that follow each other from position 0 on."""
    return tuple(Piece(key, number * chunk_tokens, chunk_tokens) for number, key in enumerate(keys))
