"""Which tokens of entries a query chooses, by how much it attends to them (ProphetKV). Pure."""

from collections.abc import Iterator, Sequence

from engine_adapters.link.plan import LinkPlan

RANGE_TOKENS = 8
"""Tokens that are chosen together: a word without its neighbours says little."""


def query_positions(plan: LinkPlan) -> range:
    """The new tokens at the end of a prompt; its last token where an entry ends it."""
    entries_stop = plan.entries[-1].positions.stop if plan.entries else 0
    return range(min(entries_stop, plan.token_count - 1), plan.token_count)


def ranked_positions(plan: LinkPlan, scores: Sequence[float], count: int) -> list[int]:
    """``count`` positions of entries that the plan does not compute, those that rank highest.

    ``scores`` has one number for each position. An entry is cut into ranges of RANGE_TOKENS from
    its first token on; a range ranks by the mean of its tokens, and before others like it by its
    position. Of the last one that is chosen the first tokens are taken.
    """
    ranges = sorted(
        _candidates(plan), key=lambda one: (-sum(scores[n] for n in one) / len(one), one[0])
    )
    return [position for one in ranges for position in one][:count]


def _candidates(plan: LinkPlan) -> Iterator[list[int]]:
    computed = {position for one in plan.computed for position in one}
    for entry in plan.entries:
        positions = entry.positions
        for first in range(0, len(positions), RANGE_TOKENS):
            left = [n for n in positions[first : first + RANGE_TOKENS] if n not in computed]
            if left:
                yield left
