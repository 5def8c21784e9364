"""Where the tokens of a linked prompt go, and which of them are computed. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from engine_adapters.link.method import LinkMethod
from engine_adapters.link.parts import EntryPart, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedEntry:
    """An entry at its place in a prompt: its tokens have the positions from ``first_position``.

    Its states were computed after ``sink_count`` tokens, which are stored before them.
    """

    entry_id: str
    first_position: int
    token_count: int
    sink_count: int = 0

    @property
    def positions(self) -> range:
        """Those of its tokens."""
        return range(self.first_position, self.first_position + self.token_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlan:
    """A prompt of ``token_count`` tokens.

    The tokens in ``computed``, which ascend and lie apart, are computed and see all tokens before
    them; the last token is always one of them, because its logits are wanted. All others are in
    one of ``entries``, which have at least one token each and stand in the order of positions:
    they keep the states that they had in their entry.

    What is computed depends on what it was linked with. Nothing of a linked prompt may be saved
    under the keys of its tokens.
    """

    token_count: int
    entries: tuple[LinkedEntry, ...]
    computed: tuple[range, ...]

    @property
    def computed_count(self) -> int:
        """Tokens that are computed."""
        return sum(map(len, self.computed))


def plan_link(parts: Sequence[Part], method: LinkMethod) -> LinkPlan:
    """The plan of a prompt of ``parts`` in this order; the same entry may come several times.

    The front of a prompt is no boundary: the states of an entry there are those of a plain
    prompt. Raises ValueError for a prompt without tokens.
    """
    # An empty part has no boundaries: its neighbours meet.
    filled = [part for part in parts if part.token_count]
    token_count = sum(part.token_count for part in filled)
    if not token_count:
        raise ValueError("a linked prompt needs at least one token")
    entries: list[LinkedEntry] = []
    computed: list[range] = []
    first = 0
    for part in filled:
        stop = first + part.token_count
        if isinstance(part, EntryPart):
            entries.append(
                LinkedEntry(
                    entry_id=part.entry_id,
                    first_position=first,
                    token_count=part.token_count,
                    sink_count=part.sink_count,
                )
            )
            computed += _recomputed(range(first, stop), method, token_count)
        else:
            computed.append(range(first, stop))
        first = stop
    computed.append(range(token_count - 1, token_count))
    return LinkPlan(
        token_count=token_count, entries=tuple(entries), computed=tuple(joined(computed))
    )


def with_computed(plan: LinkPlan, positions: Iterable[int]) -> LinkPlan:
    """The same plan with more tokens that are computed."""
    more = [range(position, position + 1) for position in positions]
    ranges = sorted([*plan.computed, *more], key=lambda one: one.start)
    return replace(plan, computed=tuple(joined(ranges)))


def chosen_count(plan: LinkPlan, parts: Sequence[Part], method: LinkMethod) -> int:
    """How many more tokens of entries the method computes than its plan of ``parts`` says.

    Of those that deviate its share of all, rounded up; where the query chooses, what is left of
    the tokens that boundaries alone would take.
    """
    if method.ranked_k:
        return plan_link(parts, method.boundary_only).computed_count - plan.computed_count
    entry_tokens = sum(entry.token_count for entry in plan.entries)
    wanted = -(-entry_tokens * method.deviating_percent // 100)
    return min(wanted, plan.token_count - plan.computed_count)


def _recomputed(positions: range, method: LinkMethod, token_count: int) -> Iterator[range]:
    """Tokens of an entry at ``positions`` that are computed again."""
    if method.half is None:
        yield positions
        return
    if positions.start:
        yield positions[: method.half]
    if positions.stop < token_count:
        yield positions[max(0, len(positions) - method.half) :]


def joined(ranges: Iterable[range]) -> Iterator[range]:
    """The same numbers as the fewest ranges, ascending; ``ranges`` begin in ascending order."""
    current = range(0)
    for one in ranges:
        if not one:
            continue
        if current and one.start <= current.stop:
            current = range(current.start, max(current.stop, one.stop))
            continue
        if current:
            yield current
        current = one
    if current:
        yield current
