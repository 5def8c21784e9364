"""Which of the requests that wait for one device may start: reads, writes, kinds of background.

Pure: time comes in as seconds on any monotonic clock.

Requests cost device time, told in bytes of reading: a request of ``n`` bytes costs
``REQUEST_COST_BYTES + n``, where written bytes count ``write_cost`` times. Each class
below the reads has a bucket of tokens of the same unit. The inequality that holds for
every class ``c`` and every interval in which a more urgent class is active throughout:

    granted(c) <= share(c) / shares above * granted(above) + BURST_COST_BYTES + one request

"Above" are the more urgent classes, whose shares add up to ``shares above``. So when no
class ever ends, each gets its share of the device's time, no more and no less: what is
granted above pays tokens into the buckets below, and a class with tokens goes first;
without tokens the most urgent class does. What a class leaves that has nothing to do
goes to the most urgent of the others.

The buckets are filled by what others are granted, not by time. A rate in bytes per
second would have to be measured, and it would be wrong as soon as the device is slower
than it was then; a proportion holds at every speed.

A class alone gets everything: without activity above it needs no tokens. Activity lasts
a little longer than the requests themselves, so that the pause in which a reader turns
from one read to the next is not filled with writes: as long as the last request took
the device, its time in flight divided by those that shared it, and at most
``PAUSE_S_MAX``. A class above that is granted nothing and completes nothing
for ``SILENCE_S`` is not active, so that a transfer that hangs holds nobody else up.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from kvstored.io.engine import TRAFFIC, Background, Foreground, Operation, Traffic

REQUEST_COST_BYTES = 64 * 1024
"""What a request costs besides its bytes."""
BURST_COST_BYTES = 4 * 1024 * 1024
"""Most tokens that a class may save up."""
PAUSE_S_MAX = 0.002
"""The longest that a device is kept free for the next request of an active class."""
QUIET_S = 0.01
"""After so long without activity above a class it may fill the device's depth. Requests that nobody
waits for do so only as far as they take no longer together: the next read comes after them."""
IN_FLIGHT_BEFORE_QUIET = 2
"""Requests of a class in flight before that: what the next read may have to wait for."""
SILENCE_S = 0.1
"""A class whose requests neither start nor end for so long is not active."""

READ_SHARE_MIN = 1e-6
"""Less is what rounding leaves."""
BACKGROUND_DIVISION: dict[Background, float] = {Background.PROMOTION: 0.6, Background.SCRUB: 0.4}
"""How kinds of background divide ``background_share``; prefetch has a share of its own."""

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePolicy:
    """Shares of each device's time, between 0 and 1; what they leave belongs to reads.

    ``background_share`` is divided between promotion and scrub as BACKGROUND_DIVISION says;
    kinds in ``background_shares`` have that share instead. A written byte takes the device
    ``write_cost`` times as long as one that is read.
    """

    write_share: float
    prefetch_share: float
    background_share: float
    write_cost: float
    background_shares: Mapping[Background, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = (
            self.write_share,
            self.prefetch_share,
            self.background_share,
            *self.background_shares.values(),
        )
        if min(self.write_cost, *given) <= 0:
            raise ValueError(f"shares and costs must be above 0: {self}")
        if self.shares[Foreground.READ] < READ_SHARE_MIN:
            raise ValueError(f"the shares leave nothing to reads: {self}")

    @property
    def shares(self) -> dict[Traffic, float]:
        """The share of every class, the most urgent first; all together they are 1."""
        default = {
            kind: share * self.background_share for kind, share in BACKGROUND_DIVISION.items()
        }
        background: dict[Traffic, float] = {
            kind: self.background_shares.get(kind, default.get(kind, self.prefetch_share))
            for kind in Background
        }
        read_share = 1 - self.write_share - sum(background.values())
        return {Foreground.READ: read_share, Foreground.WRITE: self.write_share, **background}

    def cost_bytes(self, operation: Operation, byte_count: int) -> float:
        """What a request costs, in bytes of reading."""
        factor = self.write_cost if operation is Operation.WRITE else 1.0
        return REQUEST_COST_BYTES + byte_count * factor


class Grant(NamedTuple, Generic[ItemT]):
    """A request that may start now, as one of ``running``; ``ended`` must follow."""

    item: ItemT
    traffic: Traffic
    started_s: float
    running: int


class _Class(Generic[ItemT]):
    """One class on one device: its requests, its tokens, and until when it is active.

    ``share`` is its part of the time that it divides with the classes ``above``.
    """

    def __init__(
        self, traffic: Traffic, *, above: tuple["_Class[ItemT]", ...], share: float, depth: int
    ) -> None:
        self.traffic = traffic
        self.above = above
        self.share = share
        self.contended_depth = math.ceil(share * depth)
        self.waiting: deque[tuple[ItemT, float]] = deque()
        """Items, each with its cost in bytes."""
        self.running = 0
        self.granted_bytes = 0.0
        self.active_until_s = -math.inf
        self.service_s = 0.0
        """What the device took for the last request, its time in flight divided by those that
        shared it."""
        self._tokens_per_byte = share / (sum(one.share for one in above) or math.inf)
        self._tokens_bytes = float(BURST_COST_BYTES)
        self._credited_bytes = 0.0

    def active_above_until_s(self) -> float:
        """The end of the activity above, as far as it is known now."""
        return max(one.active_until_s for one in self.above)

    def may_pay(self, now_s: float) -> bool:
        """Whether a request may start beside the activity above, for tokens."""
        if self.running >= self.contended_depth or now_s >= self.active_above_until_s():
            return False
        granted_bytes = sum(one.granted_bytes for one in self.above)
        earned_bytes = (granted_bytes - self._credited_bytes) * self._tokens_per_byte
        self._credited_bytes = granted_bytes
        self._tokens_bytes = min(self._tokens_bytes + earned_bytes, BURST_COST_BYTES)
        return self._tokens_bytes > 0

    def pay(self, cost_bytes: float) -> None:
        """Takes tokens: where some are left, also more than there are."""
        self._tokens_bytes -= cost_bytes

    def may_start_free(self, now_s: float) -> bool:
        """Whether a request may start because there is no activity above."""
        since_s = now_s - self.active_above_until_s()
        if self.running < IN_FLIGHT_BEFORE_QUIET:
            return since_s >= 0
        is_short = isinstance(self.traffic, Foreground) or self.running * self.service_s < QUIET_S
        return since_s >= QUIET_S and is_short


class Schedule(Generic[ItemT]):
    """The decision for one device with ``depth`` requests in flight. Not thread-safe."""

    def __init__(self, policy: SchedulePolicy, *, depth: int) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth}")
        self._depth = depth
        self._running = 0
        self._waiting = 0
        shares = policy.shares
        self._classes: dict[Traffic, _Class[ItemT]] = {}
        for traffic in TRAFFIC:
            above = tuple(self._classes.values())
            own: _Class[ItemT] = _Class(traffic, above=above, share=shares[traffic], depth=depth)
            self._classes[traffic] = own
        self._below_reads = tuple(self._classes.values())[:0:-1]

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not self._waiting and not self._running

    def add(self, item: ItemT, *, traffic: Traffic, cost_bytes: float, now_s: float) -> None:
        """Queues a request behind those of its class."""
        own = self._classes[traffic]
        own.waiting.append((item, cost_bytes))
        own.active_until_s = now_s + SILENCE_S
        self._waiting += 1

    def take(self, now_s: float) -> Grant[ItemT] | None:
        """The request that starts now; None while there is none that may.

        To be asked until it answers None whenever a request was added or has ended, and
        when ``retry_s`` is over.
        """
        if not self._waiting or self._running == self._depth:
            return None
        for own in self._below_reads:
            if own.waiting and own.may_pay(now_s):
                own.pay(own.waiting[0][1])
                return self._start(own, now_s)
        for own in self._classes.values():
            if own.waiting and (not own.above or own.may_start_free(now_s)):
                return self._start(own, now_s)
        return None

    def ended(self, grant: Grant[ItemT], now_s: float) -> None:
        """Takes back the place of a request that ``take`` has granted."""
        own = self._classes[grant.traffic]
        own.running -= 1
        self._running -= 1
        own.service_s = (now_s - grant.started_s) / grant.running
        if own.waiting or own.running:
            own.active_until_s = now_s + SILENCE_S
        else:
            own.active_until_s = now_s + min(own.service_s, PAUSE_S_MAX)

    def retry_s(self, now_s: float) -> float | None:
        """After how many seconds ``take`` may answer differently by itself; None if never."""
        if not self._waiting or self._running == self._depth:
            return None
        pauses_s = (own.active_above_until_s() - now_s for own in self._below_reads if own.waiting)
        return min((pause_s for pause_s in pauses_s if pause_s > 0), default=None)

    def _start(self, own: _Class[ItemT], now_s: float) -> Grant[ItemT]:
        item, cost_bytes = own.waiting.popleft()
        self._waiting -= 1
        self._running += 1
        own.running += 1
        own.granted_bytes += cost_bytes
        own.active_until_s = now_s + SILENCE_S
        return Grant(item, own.traffic, now_s, self._running)
