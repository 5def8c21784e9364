"""What is loaded of entries, what is computed instead, and in which order. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from engine_adapters.link.plan import LinkedEntry, LinkPlan, joined


class RowGroup(NamedTuple):
    """Tokens that are computed together: those of ``ranges``, which ascend and lie apart.

    A token sees the keys from position ``first_key`` up to its own.
    """

    first_key: int
    ranges: tuple[range, ...]

    @property
    def token_count(self) -> int:
        """How many tokens."""
        return sum(map(len, self.ranges))


def chunk_ranges(entry: LinkedEntry, chunk_tokens: int) -> list[range]:
    """The positions of each chunk of an entry; the last one may have fewer tokens.

    A sink is stored in the first chunks, and has no positions.
    """
    positions, sink = entry.positions, entry.sink_count
    return [
        positions[max(0, first - sink) : max(0, first + chunk_tokens - sink)]
        for first in range(0, sink + len(positions), chunk_tokens)
    ]


def loaded_chunks(plan: LinkPlan, entry: LinkedEntry, chunk_tokens: int) -> list[int]:
    """Numbers of the chunks of an entry that are worth loading: not all computed again."""
    return [
        number
        for number, chunk in enumerate(chunk_ranges(entry, chunk_tokens))
        if any(True for _ in _without([chunk], plan.computed))
    ]


def row_groups(
    plan: LinkPlan,
    loaded: Sequence[frozenset[int]],
    *,
    chunk_tokens: int,
    positions: range | None = None,
) -> tuple[RowGroup, ...]:
    """What is computed, each group after all groups before it.

    ``loaded`` are the numbers of the chunks in the cache, for each entry of the plan. Tokens of
    an entry that are missing come first, and see their own entry alone: that gives them the states
    that were lost. Only what is needed is computed so. The tokens that the plan computes come
    last, and see everything.

    With ``positions``, in which entries lie as a whole or not at all, what is computed there.
    Stretches of a prompt may be computed one after the other, those in front first: no token sees
    one behind it, and what is missing of an entry is computed before what is linked of it.

    What is missing of an entry with a sink is not among them, because it depends on tokens that
    are not in the prompt: see ``missing_counts``.
    """
    wanted = range(plan.token_count) if positions is None else positions
    groups = [
        RowGroup(entry.first_position, ranges)
        for entry, numbers in zip(plan.entries, loaded, strict=True)
        if entry.first_position in wanted and not entry.sink_count
        if (ranges := _missing(plan, entry, numbers, chunk_tokens))
    ]
    linked = RowGroup(0, tuple(_within(plan.computed, wanted)))
    return _filled([*groups, linked])


def missing_counts(
    plan: LinkPlan, loaded: Sequence[frozenset[int]], *, chunk_tokens: int
) -> dict[int, int]:
    """By number of an entry with a sink of which states are missing: its tokens that are needed.

    These are the first ones, up to the last that is missing. ``loaded`` as for ``row_groups``.
    """
    found: dict[int, int] = {}
    for number, (entry, numbers) in enumerate(zip(plan.entries, loaded, strict=True)):
        if not entry.sink_count:
            continue
        ranges = _missing(plan, entry, numbers, chunk_tokens)
        if ranges:
            found[number] = ranges[-1].stop - entry.first_position
    return found


def _missing(
    plan: LinkPlan, entry: LinkedEntry, numbers: frozenset[int], chunk_tokens: int
) -> tuple[range, ...]:
    """Tokens of an entry that the cache lacks, up to the last one that keeps its states.

    Tokens that are computed again are among them where a later one depends on their states.
    """
    chunks = chunk_ranges(entry, chunk_tokens)
    missing = list(joined(chunk for n, chunk in enumerate(chunks) if n not in numbers))
    wanted = list(_without(missing, plan.computed))
    if not wanted:
        return ()
    stop = wanted[-1].stop
    return tuple(joined(range(one.start, min(one.stop, stop)) for one in missing))


def _without(ranges: Iterable[range], taken: Sequence[range]) -> Iterator[range]:
    """What is left of ascending ``ranges`` without the numbers in ``taken``, which ascend."""
    for one in ranges:
        first = one.start
        for other in taken:
            if other.stop <= first or other.start >= one.stop:
                continue
            if other.start > first:
                yield range(first, other.start)
            first = other.stop
        if first < one.stop:
            yield range(first, one.stop)


def _within(ranges: Iterable[range], positions: range) -> Iterator[range]:
    """What lies at ``positions``."""
    for one in ranges:
        both = range(max(one.start, positions.start), min(one.stop, positions.stop))
        if both:
            yield both


def distinct(groups: Iterable[RowGroup]) -> frozenset[int]:
    """The positions in some groups, each once."""
    return frozenset(n for group in groups for one in group.ranges for n in one)


def split_groups(
    groups: Sequence[RowGroup], count: int
) -> tuple[tuple[RowGroup, ...], tuple[RowGroup, ...]]:
    """The first ``count`` tokens of some groups, and the others."""
    first: list[RowGroup] = []
    rest: list[RowGroup] = []
    for key, ranges in groups:
        taken: list[range] = []
        left: list[range] = []
        for one in ranges:
            taken.append(one[:count])
            left.append(one[count:])
            count -= len(taken[-1])
        first.append(RowGroup(key, tuple(filter(None, taken))))
        rest.append(RowGroup(key, tuple(filter(None, left))))
    return _filled(first), _filled(rest)


def _filled(groups: Iterable[RowGroup]) -> tuple[RowGroup, ...]:
    return tuple(group for group in groups if group.ranges)
