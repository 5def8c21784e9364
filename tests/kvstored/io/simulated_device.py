"""A device of finite speed under a virtual clock, and clients that drive a schedule for it."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from kvstored.io.engine import TRAFFIC, Background, Foreground, Operation, Traffic
from kvstored.io.schedule import Grant, Schedule, SchedulePolicy

MIB = 1024 * 1024
GIB = 1024 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Keeps ``outstanding`` requests of one size going; pauses before each by ``think_s``."""

    traffic: Traffic
    operation: Operation
    outstanding: int
    byte_count: int = 2 * MIB
    think_s: float = 0.0


def reads(outstanding: int = 8, *, byte_count: int = 2 * MIB, think_s: float = 0.0) -> Client:
    return Client(
        traffic=Foreground.READ,
        operation=Operation.READ,
        outstanding=outstanding,
        byte_count=byte_count,
        think_s=think_s,
    )


def writes(outstanding: int = 64) -> Client:
    return Client(traffic=Foreground.WRITE, operation=Operation.WRITE, outstanding=outstanding)


def background(outstanding: int = 16) -> Client:
    return Client(traffic=Background.PROMOTION, operation=Operation.READ, outstanding=outstanding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Bytes per second; ``factor`` changes both as time goes by. Each request starts late."""

    read_bytes_per_s: float = 2 * GIB
    write_bytes_per_s: float = 2 * GIB / 1.5
    factor: Callable[[float], float] = lambda _: 1.0

    def service_s(self, client: Client, now_s: float) -> float:
        is_read = client.operation is Operation.READ
        rate = self.read_bytes_per_s if is_read else self.write_bytes_per_s
        return client.byte_count / rate / self.factor(now_s)


def simulate(
    policy: SchedulePolicy,
    *clients: Client,
    speed: Speed,
    is_shared: bool,
    depth: int = 8,
    duration_s: float,
) -> dict[Traffic, float]:
    """Device seconds that each class got per second.

    A device that is shared serves all its requests side by side, another one in the
    order in which they started.
    """
    schedule: Schedule[Client] = Schedule(policy, depth=depth)
    running: list[tuple[Grant[Client], float]] = []
    served = dict.fromkeys(TRAFFIC, 0.0)
    numbers = itertools.count()
    arrivals = [
        (0.0, next(numbers), client) for client in clients for _ in range(client.outstanding)
    ]
    heapq.heapify(arrivals)
    now_s = 0.0
    while now_s < duration_s:
        while arrivals and arrivals[0][0] <= now_s:
            client = heapq.heappop(arrivals)[2]
            cost_bytes = policy.cost_bytes(client.operation, client.byte_count)
            schedule.add(client, traffic=client.traffic, cost_bytes=cost_bytes, now_s=now_s)
        while (grant := schedule.take(now_s)) is not None:
            running.append((grant, speed.service_s(grant.item, now_s)))
        parallel = len(running) if is_shared else 1
        ends_s = min((left_s for _, left_s in running[:parallel]), default=None)
        step_s = min(
            [
                *([ends_s * parallel] if ends_s is not None else []),
                *([arrivals[0][0] - now_s] if arrivals else []),
                *([retry_s] if (retry_s := schedule.retry_s(now_s)) is not None else []),
            ]
        )
        now_s += step_s
        for place in range(min(parallel, len(running))):
            grant, left_s = running[place]
            running[place] = (grant, left_s - step_s / parallel)
            served[grant.traffic] += step_s / parallel
        for grant, left_s in running:
            if left_s <= 1e-12:
                schedule.ended(grant, now_s)
                again_s = now_s + grant.item.think_s
                heapq.heappush(arrivals, (again_s, next(numbers), grant.item))
        running = [(grant, left_s) for grant, left_s in running if left_s > 1e-12]
    return {traffic: served[traffic] / now_s for traffic in TRAFFIC}
