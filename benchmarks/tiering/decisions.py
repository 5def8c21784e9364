"""How long a policy takes to decide, with as many keys as a large store has."""

import random
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.report import Series, Summary
from benchmarks.tiering.future import Future
from benchmarks.tiering.policies import ONLY_SIMULATED, PolicyName, make_policy
from benchmarks.tiering.tier import GROUP
from kvstored.tiers.policy.protocol import EvictionPolicy

KEYS = 1_000_000
QUICK_KEYS = 100_000
ROUNDS = 20_000
REPEATS = 3
"""With a new policy each: other work on the machine makes one of them slow."""
QUEUED = 4096
"""Keys of waiting requests."""
FIGURE = "decision_us_p99"
_PERCENTILE = 99


def measure_decisions(seed: int, *, key_count: int, rounds: int = ROUNDS) -> tuple[Series, ...]:
    """The 99th percentile of single calls, for each policy, of its repeats, and of the slowest.

    A round has a use, a change of the queue, and an eviction: the victim, its leaving, and a new
    key. Every call is timed alone.
    """
    names = [name for name in PolicyName if name not in ONLY_SIMULATED]
    series = []
    for name in names:
        p99 = tuple(_p99_us(name, seed, key_count, rounds) for _ in range(REPEATS))
        key = f"decision_us_p99_{name.value.replace('-', '_').replace(' ', '_')}"
        series.append(Series(key=key, unit="us", samples=p99))
    slowest = tuple(one.value for one in series)
    figure = Series(key=FIGURE, unit="us", samples=slowest, summary=Summary.MOST, is_figure=True)
    return (*series, figure)


def _p99_us(name: PolicyName, seed: int, key_count: int, rounds: int) -> float:
    policy = make_policy(name, Future[int](()))
    times = list(_times_us(policy, random.Random(seed), key_count, rounds))
    return float(np.percentile(times, _PERCENTILE))


def _times_us(
    policy: EvictionPolicy[int], dice: random.Random, key_count: int, rounds: int
) -> Iterator[float]:
    for key in range(key_count):
        policy.insert(key, GROUP)
    policy.hint({key: key for key in range(QUEUED)})
    clock = time.perf_counter_ns
    for number in range(rounds):
        used = (dice.randrange(key_count),)
        left: dict[int, int | None] = {number: None}
        entered: dict[int, int | None] = {number + QUEUED: number + QUEUED}
        moments = [clock()]
        policy.touch(used)
        moments.append(clock())
        policy.hint(left)
        moments.append(clock())
        policy.hint(entered)
        moments.append(clock())
        victim = next(policy.victims())
        moments.append(clock())
        policy.remove(victim)
        moments.append(clock())
        policy.insert(key_count + number, GROUP)
        moments.append(clock())
        yield from np.diff(moments) / 1000
