"""One request whose prompt is linked: what is loaded, and where it computes (EPIC). Pure.

Tokens of entries that are not computed keep the states that they had in their entry. vLLM computes
one stretch of a request in a step, so its position jumps from one stretch to the next.
"""

import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine_adapters.link.plan import joined
from engine_adapters.vllm.messages.link_request import LinkRequest


@dataclass(frozen=True, slots=True)
class LinkedChunk:
    """Chunk number ``chunk`` of entry number ``entry``, and the position of its first token."""

    entry: int
    chunk: int
    first_token: int


class Linking:
    """The stretches and the chunks of one request. Not thread-safe.

    Chunks come in the order of positions. Invariants: nothing is computed from the first chunk on
    that has not come, because a stretch sees all tokens before it; every position is in a stretch,
    or in a chunk that is loaded.
    """

    def __init__(self, request: LinkRequest, *, prompt_tokens: int, chunk_tokens: int) -> None:
        self.request = request
        self._prompt_tokens = prompt_tokens
        self._chunk_tokens = chunk_tokens
        self._stretches: list[range] = []
        self._stored_chunks: Sequence[int] = ()
        self._loaded_chunks = 0
        self.is_begun = False
        """Whether its plan holds: else it computes all of its prompt."""
        self.is_running = False
        """Whether it has blocks, and its load is ordered."""
        self.chunks: tuple[LinkedChunk, ...] = ()
        """What is loaded, in the order of positions."""
        self.jumped_tokens = 0

    def begin(self, stored_chunks: Sequence[int]) -> bool:
        """Plans by how many leading chunks of each entry are stored; False where none is wanted.

        The end of an entry that is no whole chunk is not stored, so it is computed in its place.
        """
        if self.is_begun and not self.is_running and self._stored_chunks == stored_chunks:
            # A request that waits for blocks is asked for in each step.
            return True
        self.is_running = False
        self._stored_chunks = stored_chunks
        size, entries = self._chunk_tokens, self.request.entries
        ends = [
            range(entry.start + count * size, entry.stop)
            for entry, count in zip(entries, stored_chunks, strict=True)
        ]
        self._set_stretches([*self.request.plan(self._prompt_tokens).computed, *ends])
        self.chunks = tuple(
            LinkedChunk(number, chunk, first)
            for number, (entry, count) in enumerate(zip(entries, stored_chunks, strict=True))
            for chunk in range(count)
            if not self._is_computed(range(first := entry.start + chunk * size, first + size))
        )
        self.is_begun = bool(self.chunks)
        self._loaded_chunks = self.jumped_tokens = 0
        return self.is_begun

    def give_up(self) -> None:
        """Its blocks are gone, or there are none for all of it."""
        self.is_begun = self.is_running = False

    def run(self) -> None:
        """It has blocks for all of its prompt, and its chunks are on their way."""
        self.is_running = True

    def loaded_to(self, chunk: int) -> None:
        """The chunks up to this one lie in their blocks."""
        self._loaded_chunks = max(self._loaded_chunks, chunk + 1)

    def end_loading(self, lost_chunks: Iterable[int]) -> None:
        """The load is over; none came from the one that it lost on, if any."""
        first_lost = min(lost_chunks, default=len(self.chunks))
        size = self._chunk_tokens
        lost = [range(one.first_token, one.first_token + size) for one in self.chunks[first_lost:]]
        self._set_stretches([*self._stretches, *lost])
        self._loaded_chunks = len(self.chunks)

    def clipped(self, position: int, new_tokens: int) -> int:
        """How many of ``new_tokens`` from ``position`` on a step computes; 0 to wait for the load.

        One at least of a request that does not run yet: vLLM does not admit it otherwise. The first
        token sees itself alone, so its states are those of its entry.
        """
        if not self.is_begun:
            return new_tokens
        stretch = self._next_stretch(position)
        stop = min(stretch.stop, self._frontier) if stretch.start <= position else position
        return min(new_tokens, max(stop - position, 0 if self.is_running else 1))

    def jump_from(self, position: int) -> int | None:
        """Where to go on, if all up to there was loaded and a token can be computed there."""
        if not self.is_running:
            return None
        start = self._next_stretch(position).start
        if not position < start < self._frontier:
            return None
        self.jumped_tokens += start - position
        return start

    @property
    def _frontier(self) -> int:
        """The first token of the first chunk that has not come."""
        if self._loaded_chunks == len(self.chunks):
            return sys.maxsize
        return self.chunks[self._loaded_chunks].first_token

    def _next_stretch(self, position: int) -> range:
        return self._stretches[bisect_right(self._stretches, position, key=lambda one: one.stop)]

    def _set_stretches(self, ranges: Iterable[range]) -> None:
        """The last one has no end: all that is generated is computed."""
        stretches = list(joined(sorted(filter(None, ranges), key=lambda one: one.start)))
        self._stretches = [*stretches[:-1], range(stretches[-1].start, sys.maxsize)]

    def _is_computed(self, positions: range) -> bool:
        place = bisect_right(self._stretches, positions.start, key=lambda one: one.start) - 1
        return place >= 0 and positions.stop <= self._stretches[place].stop
