"""Whether two servers said the same in the same conversations, token by token."""

from collections.abc import Sequence
from dataclasses import dataclass

TIE = 1e-5
"""Two tokens whose log-probabilities in float32 are nearer than this are equally good.

Which requests share a step changes how sums are rounded, by about a tenth of this: between such
tokens two runs of one server differ as well.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a server said to a conversation, and how much of the prompt it did not compute.

    ``margins`` are how much more likely each token was than the next best, as differences of
    log-probabilities.
    """

    text: str
    tokens: tuple[str, ...]
    margins: tuple[float, ...]
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Whether every token is the same, or was a tie when the first one differed.

    ``ties`` are conversations that went apart at a tie; what follows in them is not compared.
    """

    is_equal: bool
    ties: int


def agreement(one: Sequence[Sequence[Reply]], other: Sequence[Sequence[Reply]]) -> Agreement:
    """Compares the replies by conversation; the margins are those of ``one``."""
    parted = [_first_margin(*pair) for pair in zip(one, other, strict=True)]
    margins = [margin for margin in parted if margin is not None]
    return Agreement(
        is_equal=all(margin < TIE for margin in margins),
        ties=sum(margin < TIE for margin in margins),
    )


def _first_margin(one: Sequence[Reply], other: Sequence[Reply]) -> float | None:
    """The margin of the first token that is not the same; None when all are."""
    for left, right in zip(one, other, strict=True):
        for token, margin, said in zip(left.tokens, left.margins, right.tokens, strict=True):
            if token != said:
                return margin
    return None
