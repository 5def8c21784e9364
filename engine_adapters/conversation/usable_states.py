"""Which stored states of a conversation can be used, and where computing goes on. Pure.

States after a cut were computed with tokens that the cut dropped. So where states of the window
are gone, the missing ones can only be computed again as they were at first: from a window before
that cut, with the cut made again when its turn has come.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from engine_adapters.conversation.history import dropped, window
from kvstored_contract.keys import Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPiece:
    """Rows of a stored chunk that belong to a window.

    Rows ``first_row`` on of the chunk with this number are the tokens at the positions from
    ``first_position`` on.
    """

    chunk: int
    first_row: int
    token_count: int
    first_position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsableStates:
    """What to load, and how computing goes on.

    With the first ``cut_count`` cuts made, ``pieces`` are the whole window of the tokens before
    number ``next_token``, the first to compute.
    """

    pieces: tuple[KeptPiece, ...] = ()
    cut_count: int = 0
    next_token: int = 0

    @property
    def token_count(self) -> int:
        """Tokens whose states are loaded."""
        return sum(piece.token_count for piece in self.pieces)


def usable_states(
    cuts: Sequence[Cut],
    is_stored: Sequence[bool],
    *,
    stop: int,
    chunk_tokens: int,
    cut_count_min: int = 0,
) -> UsableStates:
    """The states from which the fewest tokens are left to compute.

    ``is_stored`` tells of each chunk of the tokens before ``stop``, the last of which may be
    incomplete, whether the store has it. None at all where fewer than ``cut_count_min`` cuts would
    be made.
    """
    cut_count = len(cuts)
    while cut_count >= cut_count_min:
        made = cuts[:cut_count]
        first = made[-1].first_token if made else 0
        end = stop if cut_count == len(cuts) else min(stop, cuts[cut_count].first_token)
        pieces = _stored_prefix(window(made, max(first, end)), is_stored, stop, chunk_tokens)
        next_token = sum(piece.token_count for piece in pieces) + dropped(made)
        # What lies before the last cut must all be there: it cannot be computed after it.
        if first <= next_token:
            return UsableStates(pieces=pieces, cut_count=cut_count, next_token=next_token)
        cut_count -= 1
    return UsableStates()


def _stored_prefix(
    ranges: Sequence[range], is_stored: Sequence[bool], stop: int, chunk_tokens: int
) -> tuple[KeptPiece, ...]:
    """The pieces of a window as far as all before them are stored.

    The chunk that ``stop`` lies in has rows before it only, also where a cut comes later in it.
    """
    pieces: list[KeptPiece] = []
    position = 0
    for numbers in ranges:
        first = numbers.start
        while first < numbers.stop:
            chunk, row = divmod(first, chunk_tokens)
            if first >= stop or not is_stored[chunk]:
                return tuple(pieces)
            count = min(numbers.stop - first, chunk_tokens - row, stop - first)
            pieces.append(
                KeptPiece(chunk=chunk, first_row=row, token_count=count, first_position=position)
            )
            first += count
            position += count
    return tuple(pieces)
