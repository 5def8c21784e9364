import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstored.io.engine import TRAFFIC, Background, Foreground, Traffic
from kvstored.io.schedule import (
    BURST_COST_BYTES,
    IN_FLIGHT_BEFORE_QUIET,
    PAUSE_S_MAX,
    QUIET_S,
    SILENCE_S,
    Grant,
    Schedule,
    SchedulePolicy,
)
from tests.kvstored.io.simulated_device import (
    MIB,
)

POLICY = SchedulePolicy(
    write_share=0.15,
    prefetch_share=1e-6,
    background_share=0.05,
    background_shares={Background.PROMOTION: 0.05 - 2e-6, Background.SCRUB: 1e-6},
    write_cost=1.5,
)
DEPTH = 8
BIG = 2 * BURST_COST_BYTES
"""A cost after which the tokens of a class are gone."""


def new_schedule(depth: int = DEPTH) -> Schedule[str]:
    return Schedule(POLICY, depth=depth)


def add(
    schedule: Schedule[str],
    traffic: Traffic,
    count: int = 1,
    *,
    cost_bytes: float = MIB,
    now_s: float = 0.0,
) -> None:
    for _ in range(count):
        schedule.add(traffic.name, traffic=traffic, cost_bytes=cost_bytes, now_s=now_s)


def taken(schedule: Schedule[str], now_s: float = 0.0) -> list[Grant[str]]:
    return list(iter(lambda: schedule.take(now_s), None))


def names(grants: list[Grant[str]]) -> list[str]:
    return [grant.item for grant in grants]


def spend_tokens(schedule: Schedule[str], traffic: Traffic) -> None:
    """Runs a request that takes all tokens if anything above is active, at time 0."""
    add(schedule, traffic, cost_bytes=BIG)
    schedule.ended(one(schedule, traffic), 0.0)


def one(schedule: Schedule[str], traffic: Traffic, now_s: float = 0.0) -> Grant[str]:
    (grant,) = taken(schedule, now_s)
    assert grant.traffic is traffic
    return grant


class TestActivityAbove:
    """While reads are active writes need tokens; afterwards they need none."""

    def test_without_reads_writes_need_no_tokens(self) -> None:
        schedule = new_schedule()
        add(schedule, Foreground.WRITE, DEPTH + 1, cost_bytes=BIG)
        assert names(taken(schedule)) == ["WRITE"] * DEPTH

    def test_without_reads_writes_spend_no_tokens(self) -> None:
        schedule = new_schedule()
        spend_tokens(schedule, Foreground.WRITE)
        add(schedule, Foreground.READ)
        one(schedule, Foreground.READ)
        add(schedule, Foreground.WRITE)
        one(schedule, Foreground.WRITE)

    def test_writes_with_tokens_go_before_reads(self) -> None:
        schedule = new_schedule(depth=1)
        add(schedule, Foreground.READ)
        add(schedule, Foreground.WRITE)
        assert names(taken(schedule)) == ["WRITE"]

    def test_writes_without_tokens_wait_until_reads_have_paid(self) -> None:
        schedule = new_schedule()
        add(schedule, Foreground.READ)
        one(schedule, Foreground.READ)
        spend_tokens(schedule, Foreground.WRITE)
        add(schedule, Foreground.WRITE)
        assert taken(schedule) == []
        debt_bytes = BIG - BURST_COST_BYTES
        add(schedule, Foreground.READ, cost_bytes=debt_bytes / 0.15 * 0.8)
        assert names(taken(schedule)) == ["READ"]
        assert taken(schedule) == []
        add(schedule, Foreground.READ)
        assert names(taken(schedule)) == ["READ", "WRITE"]

    def test_few_writes_run_beside_reads_however_many_tokens_there_are(self) -> None:
        schedule = new_schedule()
        add(schedule, Foreground.WRITE, DEPTH, cost_bytes=1)
        add(schedule, Foreground.READ)
        # 0.15 of a depth of 8, rounded up.
        assert names(taken(schedule)) == ["WRITE", "WRITE", "READ"]

    def test_background_yields_to_writes_too(self) -> None:
        schedule = new_schedule()
        add(schedule, Foreground.WRITE)
        one(schedule, Foreground.WRITE)
        spend_tokens(schedule, Background.PROMOTION)
        add(schedule, Background.PROMOTION)
        assert taken(schedule) == []

    def test_a_token_is_not_paid_twice(self) -> None:
        schedule = new_schedule()
        add(schedule, Foreground.READ, cost_bytes=BIG)
        one(schedule, Foreground.READ)
        spend_tokens(schedule, Foreground.WRITE)
        add(schedule, Foreground.WRITE, 2, cost_bytes=BIG)
        assert taken(schedule) == []
        assert taken(schedule) == []


class TestPause:
    """The device stays free for a moment after the last read."""

    def paused(self, service_s: float) -> Schedule[str]:
        """A write without tokens after a read that ends at ``service_s``."""
        schedule = new_schedule()
        add(schedule, Foreground.READ)
        read = one(schedule, Foreground.READ)
        spend_tokens(schedule, Foreground.WRITE)
        add(schedule, Foreground.WRITE)
        schedule.ended(read, service_s)
        return schedule

    @pytest.mark.parametrize("service_s", [0.0005, 0.1])
    def test_it_lasts_as_long_as_the_read_took_and_no_longer_than_its_limit(
        self, service_s: float
    ) -> None:
        schedule = self.paused(service_s)
        pause_s = min(service_s, PAUSE_S_MAX)
        assert schedule.retry_s(service_s) == pytest.approx(pause_s)
        assert taken(schedule, service_s + 0.9 * pause_s) == []
        assert names(taken(schedule, service_s + 1.1 * pause_s)) == ["WRITE"]

    def test_it_lasts_while_another_read_is_in_flight(self) -> None:
        schedule = new_schedule()
        add(schedule, Foreground.READ, 2)
        first, _ = taken(schedule)
        spend_tokens(schedule, Foreground.WRITE)
        add(schedule, Foreground.WRITE)
        schedule.ended(first, 0.001)
        assert taken(schedule, 0.001 + 2 * PAUSE_S_MAX) == []

    def test_it_lasts_while_another_read_waits(self) -> None:
        schedule = new_schedule(depth=1)
        add(schedule, Foreground.READ, 2)
        read = one(schedule, Foreground.READ)
        add(schedule, Foreground.WRITE, 2, cost_bytes=BIG)
        add(schedule, Background.PROMOTION)
        schedule.ended(read, 0.001)
        schedule.ended(one(schedule, Background.PROMOTION, 0.001), 0.01)
        schedule.ended(one(schedule, Foreground.WRITE, 0.01), 0.02)
        one(schedule, Foreground.READ, 0.02)

    def test_a_new_read_ends_it_at_once(self) -> None:
        schedule = self.paused(0.001)
        add(schedule, Foreground.READ, now_s=0.0015)
        assert names(taken(schedule, 0.0015)) == ["READ"]

    def test_afterwards_few_writes_start_until_it_has_been_quiet(self) -> None:
        schedule = self.paused(0.001)
        add(schedule, Foreground.WRITE, DEPTH)
        assert names(taken(schedule, 0.002)) == ["WRITE"] * IN_FLIGHT_BEFORE_QUIET
        assert schedule.retry_s(0.002) is None
        quiet_s = 0.002 + QUIET_S
        assert len(taken(schedule, quiet_s)) == DEPTH - IN_FLIGHT_BEFORE_QUIET

    def test_reads_that_hang_hold_nobody_up(self) -> None:
        schedule = new_schedule()
        add(schedule, Foreground.READ)
        one(schedule, Foreground.READ)
        spend_tokens(schedule, Foreground.WRITE)
        add(schedule, Foreground.WRITE)
        assert schedule.retry_s(0.0) == pytest.approx(SILENCE_S)
        assert names(taken(schedule, SILENCE_S)) == ["WRITE"]

    def test_reads_that_start_late_are_active(self) -> None:
        schedule = new_schedule()
        add(schedule, Foreground.READ)
        one(schedule, Foreground.READ, 0.9 * SILENCE_S)
        spend_tokens(schedule, Foreground.WRITE)
        add(schedule, Foreground.WRITE, now_s=1.1 * SILENCE_S)
        assert taken(schedule, 1.1 * SILENCE_S) == []

    def test_reads_that_wait_for_a_slow_device_go_before_writes_without_tokens(self) -> None:
        schedule = new_schedule(depth=1)
        add(schedule, Foreground.WRITE, 2, cost_bytes=BIG)
        write = one(schedule, Foreground.WRITE)
        add(schedule, Foreground.READ)
        schedule.ended(write, 2 * SILENCE_S)
        one(schedule, Foreground.READ, 2 * SILENCE_S)


class TestRetry:
    def test_none_while_nothing_waits(self) -> None:
        schedule = new_schedule()
        add(schedule, Foreground.READ)
        one(schedule, Foreground.READ)
        assert schedule.retry_s(0.0) is None

    def test_none_while_only_the_end_of_a_request_changes_anything(self) -> None:
        schedule = new_schedule(depth=1)
        add(schedule, Foreground.READ)
        one(schedule, Foreground.READ)
        add(schedule, Background.PROMOTION)
        assert taken(schedule) == []
        assert schedule.retry_s(0.0) is None

    def test_the_first_class_that_could_go_on_counts(self) -> None:
        schedule = new_schedule()
        add(schedule, Foreground.READ)
        read = one(schedule, Foreground.READ)
        spend_tokens(schedule, Background.PROMOTION)
        spend_tokens(schedule, Foreground.WRITE)
        add(schedule, Foreground.WRITE, now_s=0.001)
        add(schedule, Background.PROMOTION, now_s=0.001)
        schedule.ended(read, 0.001)
        # Writes wait for reads only, background for the writes as well.
        assert schedule.retry_s(0.001) == pytest.approx(0.001)


def test_a_class_is_served_in_order() -> None:
    schedule: Schedule[int] = Schedule(POLICY, depth=DEPTH)
    for number in range(DEPTH):
        schedule.add(number, traffic=Foreground.READ, cost_bytes=1, now_s=0)
    grants = list(iter(lambda: schedule.take(0), None))
    assert [grant.item for grant in grants] == list(range(DEPTH))


def test_idle_is_neither_waiting_nor_running() -> None:
    schedule = new_schedule()
    assert schedule.is_idle
    add(schedule, Foreground.READ)
    assert not schedule.is_idle
    read = one(schedule, Foreground.READ)
    assert not schedule.is_idle
    schedule.ended(read, 0.0)
    assert schedule.is_idle


@given(
    st.lists(
        st.tuples(
            st.sampled_from(TRAFFIC), st.integers(1, 4 * MIB), st.integers(0, 3), st.booleans()
        ),
        max_size=200,
    )
)
def test_the_inequality_holds_for_every_interval(
    steps: list[tuple[Traffic, int, int, bool]],
) -> None:
    schedule: Schedule[int] = Schedule(POLICY, depth=DEPTH)
    running: list[Grant[int]] = []
    granted = {traffic: [0.0] for traffic in TRAFFIC}
    for step, (traffic, cost_bytes, ends, is_late) in enumerate(steps):
        # Requests follow so fast that reads, of which one is always there, stay active.
        now_s = step * SILENCE_S / 4 + (SILENCE_S / 8 if is_late else 0.0)
        for added in (Foreground.READ, traffic):
            schedule.add(cost_bytes, traffic=added, cost_bytes=cost_bytes, now_s=now_s)
        for _ in range(min(ends, len(running))):
            schedule.ended(running.pop(0), now_s)
        while (grant := schedule.take(now_s)) is not None:
            running.append(grant)
            for one_traffic, totals in granted.items():
                totals.append(totals[-1] + (grant.item if grant.traffic is one_traffic else 0))
    above_reads = granted[Foreground.READ]
    above_writes = [r + w for r, w in zip(above_reads, granted[Foreground.WRITE], strict=True)]
    limit_bytes = BURST_COST_BYTES + 4 * MIB
    for own, above, ratio in (
        (Foreground.WRITE, above_reads, 0.15 / 0.8),
        (Background.PROMOTION, above_writes, 0.05 / 0.95),
    ):
        lead = [mine - ratio * theirs for mine, theirs in zip(granted[own], above, strict=True)]
        assert rise_max(lead) <= limit_bytes + 1


def rise_max(values: list[float]) -> float:
    """The most by which a later value exceeds an earlier one."""
    lows = itertools.accumulate(values, min)
    return max(value - low for value, low in zip(values, lows, strict=True))


def test_refuses_a_depth_of_zero() -> None:
    with pytest.raises(ValueError, match="depth must be at least 1, not 0"):
        new_schedule(depth=0)


def in_flight_alone(traffic: Traffic, *, service_s: float) -> int:
    """How many requests a device is given that has nothing else to do."""
    schedule = new_schedule()
    now_s = 1.0
    add(schedule, traffic, 4 * DEPTH, now_s=now_s)
    running = taken(schedule, now_s)
    for _ in range(DEPTH):
        now_s += service_s
        schedule.ended(running.pop(0), now_s)
        running += taken(schedule, now_s)
    return len(running)


@pytest.mark.parametrize("traffic", Background)
def test_a_read_waited_for_a_whole_depth_of_what_nobody_waited_for(traffic: Background) -> None:
    """*Bug:* at 170 MB/s these were 30 ms, after which restorations took the store for silent."""
    assert in_flight_alone(traffic, service_s=0.0001) == DEPTH
    assert in_flight_alone(traffic, service_s=QUIET_S / 3) < DEPTH / 2
    assert in_flight_alone(traffic, service_s=QUIET_S) == IN_FLIGHT_BEFORE_QUIET


def test_writes_fill_the_depth_of_any_device() -> None:
    assert in_flight_alone(Foreground.WRITE, service_s=QUIET_S) == DEPTH
