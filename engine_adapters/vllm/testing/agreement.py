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

    ``margins`` are how much more likely each token was than the next best, which is in
    ``seconds``, as differences of log-probabilities.
    """

    text: str
    tokens: tuple[str, ...]
    seconds: tuple[str, ...]
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
    """Compares the replies by conversation."""
    parted = [_parts_at_tie(*pair) for pair in zip(one, other, strict=True)]
    return Agreement(is_equal=False not in parted, ties=parted.count(True))


def _parts_at_tie(one: Sequence[Reply], other: Sequence[Reply]) -> bool | None:
    """Whether the first token that is not the same was a tie; None when all are the same.

    Of a tie both know: each has the other's token as its second best, hardly less likely.
    """
    for left, right in zip(one, other, strict=True):
        if len(left.tokens) != len(right.tokens):
            return False
        for number, pair in enumerate(zip(left.tokens, right.tokens, strict=True)):
            if pair[0] != pair[1]:
                seconds = (right.seconds[number], left.seconds[number])
                margins = (left.margins[number], right.margins[number])
                return pair == seconds and max(margins) < TIE
    return None
