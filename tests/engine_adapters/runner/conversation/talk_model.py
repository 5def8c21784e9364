"""What a conversation must be, without a store and without code of the product.

Every state is computed once, when its token comes, in a window that is cut by hand.
"""

import copy
from dataclasses import dataclass, field
from typing import Self

from kvstored_contract.keys import Cut
from tests.engine_adapters.runner.conversation.toy_states import (
    CHUNK_TOKENS,
    SINKS,
    WINDOW,
    DigestWindow,
)

Event = int | tuple[tuple[int, int], ...]
"""A token, or the positions that a cut kept."""


@dataclass(slots=True)
class TalkModel:
    """All ``token_ids`` that there ever were; all but the last are computed, as ``rows``.

    ``window`` has the states that are left and ``left`` the numbers of their tokens. ``events``
    are tokens and cuts in their order, and ``event_counts[n]`` how many of them come before the
    token with number n is computed and with it. ``trail`` has what was left at each moment: by
    how many cuts were made, and how many tokens were computed.
    """

    token_ids: list[int] = field(default_factory=list)
    cuts: list[tuple[tuple[int, int], ...]] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)
    window: DigestWindow = field(default_factory=DigestWindow)
    left: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    event_counts: list[int] = field(default_factory=list)
    trail: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=lambda: {(0, 0): ()})

    def copied(self) -> Self:
        """One that goes on by itself."""
        return copy.deepcopy(self)

    def turn(self, prompt: list[int], new_tokens: int) -> None:
        """Adds a prompt and what it is answered with."""
        self.token_ids += prompt
        self._make_room(len(self.token_ids) - len(self.rows))
        stop = len(self.token_ids) + new_tokens
        while len(self.token_ids) < stop:
            while len(self.rows) < len(self.token_ids):
                self._make_room(1)
                self._feed(self.token_ids[len(self.rows)])
            self.token_ids.append(self.window.next_token())

    def cut(self, kept: list[range]) -> None:
        """Forgets all other positions."""
        bounds = tuple((one.start, one.stop) for one in kept)
        self.left = [self.left[position] for one in kept for position in one]
        self.window.keep(kept)
        self.cuts.append(bounds)
        self.events.append(bounds)
        self._note()

    @property
    def left_ids(self) -> list[int]:
        """The tokens that are left, without the last one: that is not computed."""
        return [self.token_ids[number] for number in self.left]

    def made_cuts(self) -> list[Cut]:
        """The cuts as the contract has them."""
        cuts: list[Cut] = []
        for (cut_count, first_token), left in self.trail.items():
            if cut_count > len(cuts):
                kept = tuple(range(*bounds) for bounds in self.cuts[len(cuts)])
                gone = first_token - len(left) - sum(cut.dropped_count for cut in cuts)
                cuts.append(Cut(first_token=first_token, dropped_count=gone, kept=kept))
        return cuts

    def identity(self, stop: int) -> tuple[Event, ...]:
        """What the chunk that ends before token ``stop`` came from: everything before its end."""
        return tuple(self.events[: self.event_counts[stop - 1]])

    def chunk_rows(self, stop: int) -> list[bytes]:
        """The states in that chunk."""
        return self.rows[(stop - 1) // CHUNK_TOKENS * CHUNK_TOKENS : stop]

    def _feed(self, token_id: int) -> None:
        self.left.append(len(self.rows))
        self.rows.append(self.window.feed(token_id))
        self.events.append(token_id)
        self.event_counts.append(len(self.events))
        self._note()

    def _make_room(self, new_count: int) -> None:
        """Drops the first half until the new tokens fit (AttentionStore, section 3.4)."""
        count = len(self.left)
        sinks = min(SINKS, count)
        rest = count - sinks
        while sinks + rest + new_count > WINDOW:
            rest //= 2
        if sinks + rest < count:
            parts = [range(sinks), range(count - rest, count)]
            self.cut([one for one in parts if one])

    def _note(self) -> None:
        self.trail[len(self.cuts), len(self.rows)] = tuple(self.left)
