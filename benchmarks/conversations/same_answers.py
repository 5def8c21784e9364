"""Whether the same conversations, kept in different ways, said the same.

Greedy decoding takes the larger of two logits. Where they are closer than float32 can tell, it
depends on how many tokens a pass had which one that is: a tie is no difference of the ways.
"""

from collections.abc import Callable, Sequence

from torch import Tensor

from engine_adapters.runner.engine.request import Completion

TIE = 1e-4
"""Logits that are so close are equal, as everywhere in this project in float32."""

Logits = Callable[[Sequence[int]], Tensor]
"""Of the token after these ones, [vocab_size], computed in one pass without a store."""
Talks = dict[str, list[Completion]]
"""The turns of each conversation, in order."""


def ties(ours: Talks, others: Talks, logits: Logits) -> int | None:
    """How many conversations part at a tie; None where one says something else elsewhere.

    After a tie a conversation goes on after other tokens, and is compared no further.
    """
    if ours.keys() != others.keys():
        return None
    found = 0
    for name, turns in ours.items():
        parted = _parted(turns, others[name])
        if parted is None:
            continue
        before, tokens = parted
        if not tokens or not _is_tie(logits(before), tokens):
            return None
        found += 1
    return found


def _parted(
    ours: Sequence[Completion], others: Sequence[Completion]
) -> tuple[Sequence[int], tuple[int, ...]] | None:
    """Tokens before the first difference, and the two that differ there; None without one.

    None of these two where it is no single token: a lost turn, another history, a longer answer.
    """
    if len(ours) != len(others):
        return (), ()
    for own, other in zip(ours, others, strict=True):
        said, also = own.generated_ids, other.generated_ids
        if own.token_ids[: own.prompt_tokens] != other.token_ids[: other.prompt_tokens]:
            return own.token_ids, ()
        for number, pair in enumerate(zip(said, also, strict=False)):
            if pair[0] != pair[1]:
                before = own.token_ids[: len(own.token_ids) - len(said) + number]
                return before, pair
        if len(said) != len(also):
            return own.token_ids, ()
    return None


def _is_tie(logits: Tensor, tokens: Sequence[int]) -> bool:
    """Whether all these tokens have the largest logit, as far as float32 knows."""
    largest = float(logits.max())
    return all(largest - float(logits[token]) <= TIE for token in tokens)
