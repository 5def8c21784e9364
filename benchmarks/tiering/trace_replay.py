"""A trace of requests against one tier of blocks: how much of their prompts is found.

A block counts as found only with all before it: an engine can use no other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from benchmarks.tiering import paper
from benchmarks.tiering.future import Future
from benchmarks.tiering.policies import HINTS_MAX, PolicyName, make_policy
from benchmarks.tiering.tier import Tier
from benchmarks.tiering.trace import Request
from kvstored.tiers.policy.prefetch_plan import window_length
from kvstored.tiers.policy.queue_places import QueuePlaces


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A request, by its number, begins to wait; or starts, which its prompt does at once."""

    request: int
    is_start: bool


def steps(requests: Sequence[Request], load: float | None) -> tuple[list[Step], float]:
    """The order in which requests wait and start, and how many wait on average as one starts.

    ``load`` is the arrival rate as a part of what a server could serve, first come first
    served; a request takes as long as it has tokens. None: a server so fast that nobody waits.
    """
    if load is None:
        return [Step(request=n, is_start=True) for n in range(len(requests))], 0.0
    span_s = requests[-1].arrival_s - requests[0].arrival_s
    token_s = load * span_s * paper.BATCH / sum(each.tokens for each in requests)
    order: list[Step] = []
    ends = [requests[0].arrival_s] * paper.BATCH
    """When each slot is free."""
    entered = waited = 0
    for started, request in enumerate(requests):
        start_s = max(heappop(ends), request.arrival_s)
        while entered < len(requests) and requests[entered].arrival_s <= start_s:
            order.append(Step(request=entered, is_start=False))
            entered += 1
        order.append(Step(request=started, is_start=True))
        heappush(ends, start_s + token_s * request.tokens)
        waited += entered - started - 1
    return order, waited / len(requests)


def found_percent(
    requests: Sequence[Request],
    order: Sequence[Step],
    policy: PolicyName,
    capacity_blocks: int,
) -> float:
    """Blocks that are found, in percent of all that are asked for."""
    future = Future(block for request in requests for block in request.blocks)
    tier: Tier[int] = Tier(make_policy(policy, future), capacity_blocks)
    hints = _Hints(requests, tier, capacity_blocks) if policy.is_hinted else None
    found = asked = 0
    for step in order:
        blocks = requests[step.request].blocks
        if hints is not None:
            hints.hear(step)
        if not step.is_start:
            continue
        known = next((n for n, block in enumerate(blocks) if block not in tier), len(blocks))
        found += known
        asked += len(blocks)
        for block in blocks:
            future.passed(block)
        for block in blocks:
            if block in tier:
                tier.policy.touch((block,))
            else:
                tier.put(block, 1)
    return 100 * found / asked


class _Hints:
    """The head of the queue, as much of it as the tier can hold, told to its policy."""

    def __init__(self, requests: Sequence[Request], tier: Tier[int], capacity_blocks: int) -> None:
        self._requests = requests
        self._tier = tier
        self._queue: QueuePlaces[int, int] = QueuePlaces()
        mean = sum(len(each.blocks) for each in requests) / len(requests)
        self._window = min(HINTS_MAX, window_length(capacity_blocks, mean))
        self._entered = self._started = self._hinted = 0

    def hear(self, step: Step) -> None:
        """Hints what changed."""
        places: dict[int, int | None] = {}
        if step.is_start:
            self._started += 1
            self._entered = max(self._entered, self._started)
            places |= self._queue.leave([step.request])
            self._hinted = max(self._hinted, self._started)
        else:
            self._entered += 1
        while self._hinted < min(self._entered, self._started + self._window):
            blocks = self._requests[self._hinted].blocks
            places |= self._queue.enter(self._hinted, self._hinted, blocks)
            self._hinted += 1
        if places:
            self._tier.policy.hint(places)
