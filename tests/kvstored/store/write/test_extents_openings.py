from types import SimpleNamespace
from typing import cast

from kvstored.io.engine import IoRequest
from kvstored.store.space.device_set import DeviceSet
from kvstored.store.write.extents import SlabOpenings
from tests.support.stores import MIB

SLAB = (0, 3)


class HeldEngine:
    """Keeps what it is asked for; the test ends it."""

    def __init__(self) -> None:
        self.requests: list[IoRequest] = []

    def submit(self, request: IoRequest) -> None:
        self.requests.append(request)

    def close(self) -> None:
        pass


def test_a_slab_that_was_begun_anew_lost_its_opening() -> None:
    """Bug: who heard of the old one's end could begin the slab before the old one was forgotten."""
    engine = HeldEngine()
    device_set = cast("DeviceSet", SimpleNamespace(device_ids=[bytes(16)], epoch=1))
    openings = SlabOpenings(engine=engine, device_set=device_set)
    first = openings.begin(SLAB)
    openings.write(SLAB, 4096, MIB)
    assert openings.find(SLAB) is first
    again = []
    first.add_done_callback(lambda _: again.append(openings.begin(SLAB)))
    engine.requests[0].done(None)
    assert first.result(0) is None
    assert openings.find(SLAB) is again[0]
