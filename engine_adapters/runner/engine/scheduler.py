"""Which tokens of which sequences the next step computes, and where the cache has room. Pure."""

from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine_adapters.link.rows import RowGroup, split_groups
from engine_adapters.runner.model.step import ScatteredSegment, Segment


@dataclass(frozen=True, slots=True, order=True)
class SlotRange:
    """Slots ``first`` to ``first + count - 1``."""

    first: int
    count: int

    @property
    def stop(self) -> int:
        """Slot behind the last one."""
        return self.first + self.count


class SlotPool:
    """First-fit bookkeeping. Not thread-safe.

    Invariant: the free ranges are sorted, disjoint and never adjacent.
    """

    def __init__(self, slot_count: int) -> None:
        self.slot_count = slot_count
        self._free = [SlotRange(0, slot_count)]

    @property
    def free_count(self) -> int:
        """Slots that are not reserved, whether contiguous or not."""
        return sum(free.count for free in self._free)

    def reserve(self, count: int) -> SlotRange | None:
        """``count`` >= 1 contiguous slots, or None when no free range is long enough."""
        for index, free in enumerate(self._free):
            if free.count >= count:
                rest = SlotRange(free.first + count, free.count - count)
                self._free[index : index + 1] = [rest] if rest.count else []
                return SlotRange(free.first, count)
        return None

    def release(self, slots: SlotRange) -> None:
        """Returns a range that ``reserve`` gave; raises ValueError for any other range."""
        if any(free.first < slots.stop and slots.first < free.stop for free in self._free):
            raise ValueError(f"{slots} is free already")
        insort(self._free, slots)
        merged: list[SlotRange] = []
        for free in self._free:
            if merged and merged[-1].stop == free.first:
                merged[-1] = SlotRange(merged[-1].first, merged[-1].count + free.count)
            else:
                merged.append(free)
        self._free = merged


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one running sequence is: known tokens, and those whose states are in the cache.

    A sequence ``is_restoring`` while stored states of it are on their way: it also gets on
    by loading. ``step_tokens_max`` is the most that it wants to compute in the next step
    (0: nothing, it waits for a chunk); None for as much as there is. Counts are of all tokens
    that it ever had; ``dropped_count`` of the computed ones were cut from its history.

    A linked prompt is computed in ``groups``, in their order: all of them that fit a step are in
    it. Without any left it goes on as other sequences do.
    """

    request_id: int
    first_slot: int
    token_count: int
    computed_count: int
    is_restoring: bool = False
    step_tokens_max: int | None = None
    dropped_count: int = 0
    groups: tuple[RowGroup, ...] = ()

    @property
    def pending_count(self) -> int:
        """Tokens still to compute; 1 while decoding, at least 1 always."""
        if self.groups:
            return sum(group.token_count for group in self.groups)
        return self.token_count - self.computed_count

    @property
    def wanted_count(self) -> int:
        """Tokens of it that the next step may compute."""
        if self.step_tokens_max is None:
            return self.pending_count
        return min(self.pending_count, self.step_tokens_max)

    @property
    def rank(self) -> int:
        """Decodes before prefills before restorations (Cake, section 4 part 3)."""
        if self.is_restoring:
            return 2
        return 1 if self.pending_count > 1 else 0


def plan_step(running: Sequence[Progress], *, token_budget: int) -> list[Segment]:
    """Segments of the next step, at most ``token_budget`` tokens in all.

    Sequences with a single pending token go first, so that no prefill delays a decode;
    what is left of the budget goes to prefills in the order given, and what they leave to
    sequences that are being restored, in the order given. While ``running`` holds at most
    ``token_budget`` sequences, every decode takes part in every step.
    """
    segments: list[Segment] = []
    first_row = 0
    for progress in sorted(running, key=lambda progress: progress.rank):
        token_count = min(progress.wanted_count, token_budget - first_row)
        if token_count == 0:
            continue
        segments += _segments(progress, token_count, first_row)
        first_row += token_count
    return segments


def _segments(progress: Progress, token_count: int, first_row: int) -> Iterator[Segment]:
    """The next ``token_count`` tokens of a sequence."""
    if not progress.groups:
        yield Segment(
            request_id=progress.request_id,
            first_row=first_row,
            token_count=token_count,
            first_position=progress.computed_count - progress.dropped_count,
            first_slot=progress.first_slot,
            dropped_count=progress.dropped_count,
        )
        return
    for group in split_groups(progress.groups, token_count)[0]:
        yield ScatteredSegment.of(
            group.ranges,
            request_id=progress.request_id,
            first_row=first_row,
            first_slot=progress.first_slot,
            first_key=group.first_key,
        )
        first_row += group.token_count
