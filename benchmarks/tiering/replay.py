"""Served conversations against two tiers: which turns find their history, and where.

As in the paper a conversation is fetched and evicted as a whole, and tiers are exclusive: what DRAM
has takes no room on the disks, so the capacity of retention is the sum of both. Here one policy
decides over that sum, and one more about what of it lies in DRAM. kvstored's own tiers are
inclusive: for them the capacity is that of the devices (``disk_bytes`` alone).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from math import inf
from operator import attrgetter

from benchmarks.tiering.constants import ROOM_SHARE
from benchmarks.tiering.contexts import Context
from benchmarks.tiering.fetching import AS_ALWAYS, Fetching, Typing, typing_of
from benchmarks.tiering.future import Future
from benchmarks.tiering.line import Line
from benchmarks.tiering.paper import Model
from benchmarks.tiering.policies import HINTS_MAX, PolicyName, make_policy
from benchmarks.tiering.serving import Event, Kind, Served, warm_up
from benchmarks.tiering.tier import Tier
from kvstored.tiers.policy.expiry import Expiry
from kvstored.tiers.policy.prefetch_plan import (
    WaitingSequence,
    Watermarks,
    plan_prefetch,
    window_length,
)

_BUFFER_LOW, _BUFFER_HIGH = 0.02, 0.05
"""Parts of DRAM that its watermarks keep free."""
WAITED_S = 10.0
"""Less than this is too short for a fetch behind others."""
_BUSY_S = 5.0
"""Nothing more is fetched while the disks have work for so long: what comes first may change."""
_PLANS_PER_WINDOW = 8
"""So often a plan is made while a window's turns start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Two tiers, a model, a policy.

    ``disk_bytes_per_s`` is at which tokens come from the disks. ``is_reserved``: a conversation
    takes room for a whole context window, else for its tokens. ``is_coupled``: stored positions
    make states useless after a cut. Without ``ttl_s`` nothing expires. ``kept_policy`` decides what
    is kept at all, where that is another one. ``fetching`` is how states come from the disks.
    """

    policy: PolicyName
    disk_bytes: int
    dram_bytes: int
    model: Model
    disk_bytes_per_s: float
    is_reserved: bool = True
    is_coupled: bool = False
    ttl_s: float | None = None
    kept_policy: PolicyName | None = None
    fetching: Fetching = AS_ALWAYS

    def bytes_of(self, context: Context) -> int:
        """What a conversation takes after a turn."""
        tokens = ROOM_SHARE * self.model.window_tokens
        return round(self.model.token_bytes * (tokens if self.is_reserved else context.token_count))


@dataclass(slots=True)
class Hits:
    """Turns after the warm-up. A first turn has no history to find."""

    turns: int = 0
    first_turns: int = 0
    in_dram: int = 0
    on_disk: int = 0
    in_dram_waited: int = 0
    """Of turns that waited for ``WAITED_S`` at least, as the next."""
    on_disk_waited: int = 0
    needed_bytes: int = 0
    """Stored states of the turns that were hits."""
    read_bytes: int = 0
    """Read from the disks in the same time, as often as it was read."""

    @property
    def of_all(self) -> float:
        """Hits in percent of all turns."""
        return 100 * (self.in_dram + self.on_disk) / max(1, self.turns)

    @property
    def of_later(self) -> float:
        """Hits in percent of the turns that have a history."""
        return 100 * (self.in_dram + self.on_disk) / max(1, self.turns - self.first_turns)

    @property
    def dram_share(self) -> float:
        """Part of the hits that DRAM had."""
        return self.in_dram / max(1, self.in_dram + self.on_disk)

    @property
    def dram_share_waited(self) -> float:
        """The same of turns that waited long enough for their states to be fetched."""
        return self.in_dram_waited / max(1, self.in_dram_waited + self.on_disk_waited)


def replay(served: Served, contexts: Sequence[Sequence[Context]], setting: Setting) -> Hits:
    """Runs all events through new tiers; ``contexts`` are those of each conversation's turns."""
    run = _Replay(served, contexts, setting)
    typing = typing_of(served.events, setting.fetching.typing_s)
    events: Iterator[Event | Typing] = merge(served.events, typing, key=attrgetter("time_s"))
    for event in events:
        if isinstance(event, Typing):
            run.type(event)
        else:
            run.handle(event)
    return run.hits


class _Replay:
    """One run."""

    def __init__(
        self, served: Served, contexts: Sequence[Sequence[Context]], setting: Setting
    ) -> None:
        self.hits = Hits()
        self._setting = setting
        self._contexts = contexts
        starts = [each.conversation for each in served.events if each.kind is Kind.START]
        self._uncounted = warm_up(len(starts))
        self._future = Future(starts)
        self._kept = Tier(
            make_policy(setting.kept_policy or setting.policy, self._future),
            setting.disk_bytes + setting.dram_bytes,
        )
        marks = Watermarks(
            low_bytes=int(setting.dram_bytes * _BUFFER_LOW),
            high_bytes=int(setting.dram_bytes * _BUFFER_HIGH),
        )
        self._dram = Tier(make_policy(setting.policy, self._future), setting.dram_bytes, marks)
        self._expiry = None if setting.ttl_s is None else Expiry[int](setting.ttl_s)
        self._line = Line()
        self._tokens: dict[int, int] = {}
        """Of each conversation, as it was stored last."""
        self._turns: dict[int, int] = {}
        """Of each conversation, the one that waits or is typed."""
        self._ready_s: dict[int, float] = {}
        """When what is fetched is in DRAM."""
        self._disk_free_s = 0.0
        self._next_plan = 0

    def handle(self, event: Event) -> None:
        """Carries out an event."""
        if self._expiry is not None:
            for key in list(self._expiry.expired(event.time_s)):
                self._drop(key)
        match event.kind:
            case Kind.ENTER:
                self._turns[event.conversation] = event.turn
                self._line.enter(event.conversation, event.time_s)
                self._hint(())
                self._prefetch(event.time_s, is_new=True)
            case Kind.START:
                self._start(event)
            case Kind.END:
                self._end(event)

    def type(self, event: Typing) -> None:
        """Fetches what the next turn needs, if nobody waits and the disks have time.

        Where others wait the queue tells soon enough.
        """
        key = event.conversation
        self._turns[key] = event.turn
        is_idle = len(self._line) == 0 and self._disk_free_s <= event.time_s + _BUSY_S
        if is_idle and key in self._kept and key not in self._dram:
            # How much the window will drop is known when the turn is.
            self._fetch(key, event.time_s, tokens=self._tokens[key])

    def _start(self, event: Event) -> None:
        key = event.conversation
        self._future.passed(key)
        ready_s = self._ready_s.pop(key, 0.0) if key in self._dram else inf
        waited_s = self._line.start(key, event.time_s)
        self._count(event, waited_s, ready_s)
        self._hint((key,))
        for tier in (self._kept, self._dram):
            tier.policy.touch((key,))
        self._prefetch(event.time_s, is_new=False)

    def _count(self, event: Event, waited_s: float, ready_s: float) -> None:
        """Counts a turn whose states are in DRAM at a time, at none if they are not fetched."""
        key, is_first = event.conversation, event.turn == 0
        is_in_dram = ready_s <= event.time_s
        if self._setting.is_coupled and self._contexts[key][event.turn].is_cut:
            self._drop(key)
        is_hit = key in self._kept and not is_first
        fetching = self._setting.fetching
        is_hit &= not fetching.is_computed or ready_s < inf
        if is_hit and not is_in_dram and not (fetching.is_joined and ready_s < inf):
            self._read(key, event.time_s)
        if self._line.started <= self._uncounted:
            return
        self.hits.turns += 1
        self.hits.first_turns += is_first
        if is_hit:
            self.hits.in_dram += is_in_dram
            self.hits.on_disk += not is_in_dram
            self.hits.needed_bytes += self._tokens[key] * self._setting.model.token_bytes
            if waited_s >= WAITED_S:
                self.hits.in_dram_waited += is_in_dram
                self.hits.on_disk_waited += not is_in_dram

    def _end(self, event: Event) -> None:
        key = event.conversation
        self._tokens[key] = self._contexts[key][event.turn].token_count
        byte_count = self._setting.bytes_of(self._contexts[key][event.turn])
        if self._expiry is not None:
            self._expiry.use(key, event.time_s)
        self._dram.put(key, byte_count)
        for victim in self._kept.put(key, byte_count):
            self._drop(victim)

    def _drop(self, key: int) -> None:
        self._kept.drop(key)
        self._dram.drop(key)
        if self._expiry is not None:
            self._expiry.remove(key)

    def _hint(self, left: tuple[int, ...]) -> None:
        """Tells both policies who left the queue, and who is in the window now."""
        if not self._setting.policy.is_hinted:
            return
        window = HINTS_MAX
        if self._setting.policy is PolicyName.LOOK_AHEAD:
            window = window_length(self._kept.capacity_bytes, self._kept.mean_bytes)
        places = dict.fromkeys(left) | self._line.newly_within(window)
        for tier in (self._kept, self._dram):
            tier.policy.hint(places)

    def _prefetch(self, now_s: float, *, is_new: bool) -> None:
        """Fetches what the window lacks: at once for a short queue, else now and then."""
        if not self._setting.policy.is_hinted or not self._kept:
            return
        window = window_length(self._dram.capacity_bytes, self._kept.mean_bytes)
        if is_new:
            if len(self._line) > window:
                return
        elif self._line.started < self._next_plan:
            return
        else:
            self._next_plan = self._line.started + max(1, window // _PLANS_PER_WINDOW)
        capacity_bytes = int(self._dram.capacity_bytes * (1 - _BUFFER_HIGH))
        waiting = self._waiting(now_s, 2 * window)
        plan = plan_prefetch(waiting, self._dram, capacity_bytes=capacity_bytes)
        for (key,) in list(plan):
            if self._disk_free_s > now_s + _BUSY_S:
                return
            self._fetch(key, now_s)

    def _waiting(self, now_s: float, count: int) -> Iterator[WaitingSequence[int]]:
        """Stored conversations of the queue's head, without those that start too soon to be there.

        These are read when they start, as without a plan.
        """
        interval_s = self._line.interval_s(now_s)
        busy_s = max(0.0, self._disk_free_s - now_s)
        for ahead, key in enumerate(self._line.head(count)):
            is_late = key not in self._dram and ahead * interval_s < busy_s
            if key in self._kept and not is_late:
                yield WaitingSequence(chunks=(key,), chunk_bytes=self._kept.size(key))

    def _fetch(self, key: int, now_s: float, *, tokens: int | None = None) -> None:
        self._ready_s[key] = self._read(key, now_s, tokens=tokens)
        self._dram.put(key, self._kept.size(key))

    def _read(self, key: int, now_s: float, *, tokens: int | None = None) -> float:
        """Reads so many of a conversation's tokens, or what its turn needs; when it is done."""
        if tokens is None:
            tokens = self._tokens[key]
            if self._setting.fetching.is_cut:
                tokens = self._contexts[key][self._turns[key]].history_tokens
        byte_count = tokens * self._setting.model.token_bytes
        if self._line.started > self._uncounted:
            self.hits.read_bytes += byte_count
        self._disk_free_s = (
            max(self._disk_free_s, now_s) + byte_count / self._setting.disk_bytes_per_s
        )
        return self._disk_free_s
