"""What is left of a history after cuts, and where it is cut when it gets too long. Pure.

All tokens that a history ever had are numbered from 0, dropped ones included. The *window* is
what an engine attends to: some ranges of these numbers, whose tokens have the positions from 0 on.
"""

from collections.abc import Iterable, Sequence

from engine_adapters.conversation.errors import ConversationError
from kvstored_contract.keys import Cut


def merged(ranges: Iterable[range]) -> tuple[range, ...]:
    """Ascending ranges without empty ones; those that touch become one."""
    result: list[range] = []
    for one in ranges:
        if not one:
            continue
        if result and result[-1].stop == one.start:
            result[-1] = range(result[-1].start, one.stop)
        else:
            result.append(one)
    return tuple(result)


def total(ranges: Iterable[range]) -> int:
    """Tokens of ranges that do not overlap."""
    return sum(map(len, ranges))


def dropped(cuts: Iterable[Cut]) -> int:
    """How many tokens are gone: the number of a token after them less its position."""
    return sum(cut.dropped_count for cut in cuts)


def window(cuts: Iterable[Cut], stop: int) -> tuple[range, ...]:
    """Numbers of the tokens that are left when those before ``stop`` are computed.

    ``cuts`` come in order, none of them after ``stop``.
    """
    ranges: tuple[range, ...] = ()
    start = 0
    for cut in cuts:
        ranges = _at(merged((*ranges, range(start, cut.first_token))), cut.kept)
        start = cut.first_token
    return merged((*ranges, range(start, stop)))


def make_cut(cuts: Sequence[Cut], first_token: int, kept: Iterable[range]) -> Cut:
    """A cut after ``cuts`` that keeps the positions ``kept``, from number ``first_token`` on.

    Raises ConversationError unless these ascend, lie apart and inside the window, and leave out
    at least one of its tokens, or where ``first_token`` lies before an earlier cut.
    """
    if cuts and first_token < cuts[-1].first_token:
        raise ConversationError(
            f"a cut at token {first_token} lies before the one at token {cuts[-1].first_token}"
        )
    count = first_token - dropped(cuts)
    kept = tuple(kept)
    position = 0
    for one in kept:
        if one.step != 1 or not position <= one.start <= one.stop <= count:
            raise ConversationError(
                f"a cut keeps ascending ranges of the {count} positions before it, not {kept}"
            )
        position = one.stop
    kept = merged(kept)
    if total(kept) == count:
        raise ConversationError(f"a cut that keeps all {count} tokens drops none")
    return Cut(first_token=first_token, dropped_count=count - total(kept), kept=kept)


def overflow_cut(
    cuts: Sequence[Cut], first_token: int, *, new_count: int, window_tokens: int, sink_tokens: int
) -> Cut | None:
    """The cut that makes room for ``new_count`` tokens; None where there is room.

    It drops the first half of the window (AttentionStore, section 3.4), the first ``sink_tokens``
    positions excepted, and half of the rest again until the new tokens fit ``window_tokens``.
    Raises ConversationError where they do not even fit without anything to drop.
    """
    count = first_token - dropped(cuts)
    sinks = min(sink_tokens, count)
    rest = count - sinks
    while rest and sinks + rest + new_count > window_tokens:
        rest //= 2
    if sinks + rest + new_count > window_tokens:
        raise ConversationError(
            f"{new_count} new tokens and the first {sinks} ones exceed a window of "
            f"{window_tokens} tokens"
        )
    if sinks + rest == count:
        return None
    return make_cut(cuts, first_token, (range(sinks), range(count - rest, count)))


def _at(ranges: Iterable[range], kept: Iterable[range]) -> tuple[range, ...]:
    """The numbers at the positions ``kept``."""
    result: list[range] = []
    for positions in kept:
        first = 0
        for numbers in ranges:
            inside = numbers[max(0, positions.start - first) : max(0, positions.stop - first)]
            result.append(inside)
            first += len(numbers)
    return merged(result)
