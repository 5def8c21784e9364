"""How many leases of look-ups are kept, and how long."""

from typing import cast

import pytest

from engine_adapters.lmcache.found_leases import FoundLeases
from kvstored_client import Lease
from kvstored_client.session.session import Session
from kvstored_client.verbs.store_verbs import LeaseGrant


class Bench:
    """Leases by their numbers, and those that were released."""

    def __init__(self, **limits: int) -> None:
        self.now_s = 0.0
        self.released: list[int] = []
        self.found = FoundLeases(lease_s=20.0, clock=lambda: self.now_s, **limits)

    def keep(self, number: int, object_count: int = 1) -> None:
        def release(_: LeaseGrant) -> bool:
            self.released.append(number)
            return True

        grant = LeaseGrant(
            session=cast("Session", None), lease_ids=(number,), is_pinned=(True,) * object_count
        )
        self.found.keep(Lease(grant, release))


@pytest.mark.parametrize(
    ("limits", "objects"), [({"lease_count_max": 2}, 1), ({"object_count_max": 25}, 10)]
)
def test_look_ups_were_refused_with_too_many_leases(limits: dict[str, int], objects: int) -> None:
    """Bug: none was ever released, so that a busy node found nothing after some seconds."""
    bench = Bench(**limits)
    for number in range(5):
        bench.keep(number, objects)
    assert bench.released == [0, 1, 2]


def test_a_look_up_that_found_too_much_alone_is_kept() -> None:
    bench = Bench(object_count_max=2)
    bench.keep(0, 3)
    assert bench.released == []
    bench.keep(1)
    assert bench.released == [0]


def test_what_has_expired_costs_no_call() -> None:
    bench = Bench(lease_count_max=2)
    bench.keep(0)
    bench.now_s = 20.0
    for number in range(1, 4):
        bench.keep(number)
    assert bench.released == [1]
