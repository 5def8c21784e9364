"""How many tokens of a conversation have states after each turn, and where its window overflows."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.tiering import paper


@dataclass(frozen=True, slots=True)
class Context:
    """After one turn. ``is_cut``: tokens were dropped from the front before it.

    ``history_tokens`` of the turns before are left then: all that a turn needs of what is stored.
    """

    token_count: int
    is_cut: bool
    history_tokens: int = 0


def contexts(turns: Sequence[int], window_tokens: int) -> list[Context]:
    """One for each turn. An overflow drops half a window of the oldest tokens, as often as needed.

    A turn that is longer than the window is as long as the window.
    """
    found: list[Context] = []
    dropped = int(window_tokens * paper.TRUNCATION)
    kept = 0
    for tokens in turns:
        fitting = min(tokens, window_tokens)
        is_cut = kept + fitting > window_tokens
        while kept + fitting > window_tokens:
            kept = max(0, kept - dropped)
        found.append(Context(kept + fitting, is_cut, kept))
        kept += fitting
    return found
