"""What each class of requests gets of a device, and what a request costs."""

from dataclasses import replace

import pytest

from kvstored.io.engine import TRAFFIC, Background, Foreground, IoRequest, Operation
from kvstored.io.schedule import BACKGROUND_DIVISION, REQUEST_COST_BYTES, SchedulePolicy
from tests.kvstored.io.simulated_device import MIB

POLICY = SchedulePolicy(write_share=0.15, prefetch_share=0.1, background_share=0.05, write_cost=1.5)


def test_costs_are_told_in_bytes_of_reading() -> None:
    assert POLICY.cost_bytes(Operation.READ, MIB) == REQUEST_COST_BYTES + MIB
    assert POLICY.cost_bytes(Operation.WRITE, MIB) == REQUEST_COST_BYTES + 1.5 * MIB


@pytest.mark.parametrize(
    ("write_share", "background_share", "write_cost", "words"),
    [
        (0.0, 0.1, 1.0, "above 0"),
        (0.1, 0.0, 1.0, "above 0"),
        (0.1, 0.1, 0.0, "above 0"),
        (0.5, 0.5, 1.0, "leave nothing to reads"),
    ],
)
def test_refuses_impossible_policies(
    write_share: float, background_share: float, write_cost: float, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        SchedulePolicy(
            write_share=write_share,
            prefetch_share=1e-6,
            background_share=background_share,
            write_cost=write_cost,
        )


def test_kinds_of_background_divide_what_they_have_together() -> None:
    policy = SchedulePolicy(
        write_share=0.15, prefetch_share=1e-9, background_share=0.05, write_cost=1.5
    )
    assert list(policy.shares) == list(TRAFFIC)
    assert set(BACKGROUND_DIVISION) == set(Background) - {Background.PREFETCH}
    assert sum(BACKGROUND_DIVISION.values()) == pytest.approx(1)
    assert sum(policy.shares.values()) == pytest.approx(1)
    assert policy.shares[Foreground.READ] == pytest.approx(0.8)
    assert policy.shares[Background.PROMOTION] == pytest.approx(0.03)
    own = replace(policy, background_shares={Background.SCRUB: 0.1})
    assert own.shares[Background.SCRUB] == 0.1
    assert own.shares[Background.PROMOTION] == pytest.approx(0.03)
    assert own.shares[Foreground.READ] == pytest.approx(0.72)


def test_refuses_shares_of_kinds_that_are_nothing_or_leave_nothing() -> None:
    policy = SchedulePolicy(
        write_share=0.5, prefetch_share=1e-6, background_share=0.1, write_cost=1.0
    )
    with pytest.raises(ValueError, match="above 0"):
        replace(policy, background_shares={Background.SCRUB: 0.0})
    with pytest.raises(ValueError, match="leave nothing to reads"):
        replace(policy, background_shares={Background.SCRUB: 0.45})


def test_a_write_that_puts_wait_for_is_as_urgent_as_a_read() -> None:
    request = IoRequest(
        device_index=0, operation=Operation.WRITE, buffers=(), offset=0, done=lambda _: None
    )
    assert request.traffic is Foreground.WRITE
    assert replace(request, is_awaited=True).traffic is Foreground.READ
    assert replace(request, background=Background.SCRUB).traffic is Background.SCRUB


def test_what_is_read_ahead_has_a_share_of_its_own() -> None:
    assert POLICY.shares[Background.PREFETCH] == 0.1
    assert POLICY.shares[Background.PROMOTION] == pytest.approx(0.03)
    assert POLICY.shares[Foreground.READ] == pytest.approx(0.7)
    own = replace(POLICY, background_shares={Background.PREFETCH: 0.2})
    assert own.shares[Background.PREFETCH] == 0.2
    with pytest.raises(ValueError, match="above 0"):
        replace(POLICY, prefetch_share=0.0)
