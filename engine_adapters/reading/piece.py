"""Where in a sequence the tokens of a stored chunk stand. Pure."""

from collections.abc import Iterator, Sequence
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


def tokens_of(pieces: Sequence[Piece], chosen: range) -> int | None:
    """Tokens of each of ``chosen`` pieces, which all have as many; None for no pieces."""
    return pieces[chosen.start].token_count if chosen else None


def stretches(pieces: Sequence[Piece], chosen: range) -> Iterator[range]:
    """``chosen`` pieces as stretches without a gap, each with as many tokens a piece."""
    first = chosen.start
    for number in chosen:
        if number + 1 < chosen.stop:
            piece, following = pieces[number], pieces[number + 1]
            is_next = piece.stop_position == following.first_position
            if is_next and piece.token_count == following.token_count:
                continue
        yield range(first, number + 1)
        first = number + 1
