"""A server under a virtual clock: when each turn begins to wait, runs and ends. Pure.

First come, first served, by a batch of as many turns as the paper's server runs at once. What a
cache keeps has no influence here: every policy sees the same turns at the same moments.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heappop, heappush
from statistics import fmean
from typing import NamedTuple

from benchmarks.tiering import paper
from benchmarks.tiering.conversations import Conversation


class Kind(Enum):
    """What happens to a turn."""

    ENTER = 0
    """It begins to wait."""
    START = 1
    END = 2


class Event(NamedTuple):
    """Something that happens to a turn of a conversation, both by their numbers from 0."""

    time_s: float
    kind: Kind
    conversation: int
    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """All events in their order; turns start in the order in which they enter."""

    events: Sequence[Event]
    queue_lengths: Sequence[int]
    """Turns that wait as each one starts."""

    @property
    def queue_mean(self) -> float:
        """Turns that wait, over all starts after the warm-up."""
        return fmean(self.queue_lengths[warm_up(len(self.queue_lengths)) :])


def warm_up(turn_count: int) -> int:
    """Starts that are not counted: the paper's ten thousand, or the same part of fewer."""
    all_turns = paper.SESSIONS * paper.MEAN_TURNS
    return round(paper.WARM_UP_TURNS / all_turns * turn_count)


def serve(
    conversations: Sequence[Conversation], *, turns_per_s: float, think_s: float, seed: int
) -> Served:
    """Runs all turns. ``turns_per_s`` end while others wait; long ones take longer."""
    dice = random.Random(seed)
    mean_tokens = fmean(tokens for each in conversations for tokens in each.turns)
    token_s = paper.BATCH / turns_per_s / mean_tokens
    ahead: list[tuple[float, int, Kind, int]] = []
    for number, each in enumerate(conversations):
        heappush(ahead, (each.arrival_s, number, Kind.ENTER, 0))
    waiting: deque[tuple[int, int]] = deque()
    events: list[Event] = []
    lengths: list[int] = []
    free_slots = paper.BATCH
    while ahead:
        now_s, number, kind, turn = heappop(ahead)
        events.append(Event(now_s, kind, number, turn))
        if kind is Kind.ENTER:
            waiting.append((number, turn))
        else:
            free_slots += 1
            if turn + 1 < len(conversations[number].turns):
                think = dice.expovariate(1 / think_s)
                heappush(ahead, (now_s + think, number, Kind.ENTER, turn + 1))
        while waiting and free_slots:
            first, its_turn = waiting.popleft()
            lengths.append(len(waiting))
            free_slots -= 1
            events.append(Event(now_s, Kind.START, first, its_turn))
            end_s = now_s + token_s * conversations[first].turns[its_turn]
            heappush(ahead, (end_s, first, Kind.END, its_turn))
    return Served(events=events, queue_lengths=lengths)
