from dataclasses import replace

import pytest

from kvstored.io.engine import Background, Foreground, Traffic
from kvstored.io.schedule import (
    SchedulePolicy,
)
from tests.kvstored.io.simulated_device import (
    GIB,
    Client,
    Speed,
    background,
    reads,
    simulate,
    writes,
)

POLICY = SchedulePolicy(
    write_share=0.15,
    prefetch_share=1e-6,
    background_share=0.05,
    background_shares={Background.PROMOTION: 0.05 - 2e-6, Background.SCRUB: 1e-6},
    write_cost=1.5,
)


def shares(*clients: Client, speed: Speed, is_shared: bool) -> dict[Traffic, float]:
    """The part of the device's time that each class got, over some thousand requests."""
    duration_s = 2.0 / speed.factor(0.0)
    return simulate(POLICY, *clients, speed=speed, is_shared=is_shared, duration_s=duration_s)


class TestSimulated:
    """What the classes get from a device of finite speed, under saturating writes."""

    @pytest.fixture(params=[True, False], ids=["shared", "in_order"])
    def is_shared(self, request: pytest.FixtureRequest) -> bool:
        return bool(request.param)

    @pytest.fixture(params=[1.0, 0.1], ids=["fast", "slow"])
    def speed(self, request: pytest.FixtureRequest) -> Speed:
        factor: float = request.param
        return Speed(factor=lambda _: factor)

    @pytest.mark.parametrize("outstanding", [1, 2, 8, 32])
    def test_reads_keep_their_rate(self, speed: Speed, is_shared: bool, outstanding: int) -> None:
        client = reads(outstanding)
        alone = shares(client, speed=speed, is_shared=is_shared)
        mixed = shares(client, writes(), background(), speed=speed, is_shared=is_shared)
        assert mixed[Foreground.READ] >= 0.79 * alone[Foreground.READ]

    def test_reads_that_pause_in_between_keep_their_rate(
        self, speed: Speed, is_shared: bool
    ) -> None:
        client = reads(1, think_s=0.0003)
        alone = shares(client, speed=speed, is_shared=is_shared)
        mixed = shares(client, writes(), speed=speed, is_shared=is_shared)
        assert mixed[Foreground.READ] >= 0.8 * alone[Foreground.READ]

    def test_a_share_holds_while_the_device_changes_its_speed(self, is_shared: bool) -> None:
        speed = Speed(factor=lambda now_s: 1.0 if now_s % 1 < 0.5 else 0.5)
        got = shares(reads(), writes(), background(), speed=speed, is_shared=is_shared)
        assert got[Foreground.READ] == pytest.approx(0.8, abs=0.03)

    def test_writes_and_background_get_their_share_of_endless_reads(
        self, speed: Speed, is_shared: bool
    ) -> None:
        got = shares(reads(32), writes(), background(), speed=speed, is_shared=is_shared)
        assert got[Foreground.WRITE] == pytest.approx(0.15, abs=0.03)
        assert got[Background.PROMOTION] == pytest.approx(0.05, abs=0.02)

    def test_promotion_and_scrub_shared_what_they_may_take(
        self, speed: Speed, is_shared: bool
    ) -> None:
        """Bug: whichever asked for more took all that both had."""
        policy = SchedulePolicy(
            write_share=0.15, prefetch_share=1e-6, background_share=0.1, write_cost=1.5
        )
        scrub = replace(background(32), traffic=Background.SCRUB)
        for promotions in (1, 32):
            got = simulate(
                policy,
                reads(32),
                writes(),
                background(promotions),
                scrub,
                speed=speed,
                is_shared=is_shared,
                duration_s=2.0 / speed.factor(0.0),
            )
            assert got[Background.PROMOTION] == pytest.approx(0.06, abs=0.02)
            assert got[Background.SCRUB] == pytest.approx(0.04, abs=0.02)

    def test_background_gets_its_share_of_endless_writes(
        self, speed: Speed, is_shared: bool
    ) -> None:
        got = shares(writes(), background(), speed=speed, is_shared=is_shared)
        assert got[Background.PROMOTION] == pytest.approx(0.05, abs=0.02)
        assert sum(got.values()) == pytest.approx(1, abs=0.01)

    @pytest.mark.parametrize("client", [reads(), writes(), background()])
    def test_a_class_alone_gets_everything(
        self, speed: Speed, is_shared: bool, client: Client
    ) -> None:
        got = shares(client, speed=speed, is_shared=is_shared)
        assert got[client.traffic] == pytest.approx(1, abs=0.01)

    def test_reads_now_and_then_leave_the_device_to_writes(self, is_shared: bool) -> None:
        client = reads(1, byte_count=4096, think_s=0.003)
        got = shares(client, writes(), speed=Speed(), is_shared=is_shared)
        assert got[Foreground.WRITE] > 0.8

    def test_writes_that_cost_twice_what_was_configured_leave_reads_most(
        self, is_shared: bool
    ) -> None:
        speed = Speed(write_bytes_per_s=2 * GIB / 3)
        got = shares(reads(), writes(), speed=speed, is_shared=is_shared)
        assert got[Foreground.READ] > 0.7
