import threading

from engine_adapters.reading.arena_share import ArenaShare
from kvstored_client.testing import MemoryClient
from tests.engine_adapters.runner.memory import make_store
from tests.support.waiting import wait_until


class Holder:
    """Enters on a thread of its own."""

    def __init__(self, share: ArenaShare, byte_count: int) -> None:
        self._share = share
        self.is_in: bool | None = None
        self.is_wanted = True
        self._thread = threading.Thread(target=self._enter, args=(byte_count,))
        self._thread.start()

    def _enter(self, byte_count: int) -> None:
        self.is_in = self._share.enter(self, byte_count, is_wanted=lambda: self.is_wanted)

    def settle(self) -> bool | None:
        self._thread.join()
        return self.is_in

    def end(self) -> None:
        self.is_wanted = False
        self._thread.join()
        self._share.leave(self)


def test_as_many_are_let_in_as_there_is_room_for() -> None:
    share = ArenaShare(10)
    holders = [Holder(share, 4) for _ in range(3)]
    wait_until(lambda: [each.is_in for each in holders].count(True) == 2)
    first = next(each for each in holders if each.is_in)
    first.end()
    assert all(each.settle() for each in holders)
    for each in holders:
        each.end()


def test_one_is_let_in_however_much_it_needs_and_nobody_overtakes_a_large_one() -> None:
    share = ArenaShare(10)
    first = Holder(share, 4)
    assert first.settle()
    large = Holder(share, 100)
    wait_until(lambda: large in share._waiting)
    small = Holder(share, 4)
    wait_until(lambda: small in share._waiting)
    assert (large.is_in, small.is_in) == (None, None)
    first.end()
    assert large.settle()
    assert small.is_in is None
    large.end()
    assert small.settle()
    small.end()


def test_who_is_wanted_no_more_makes_room_for_the_next() -> None:
    share = ArenaShare(10)
    first, large = Holder(share, 4), None
    assert first.settle()
    large = Holder(share, 100)
    wait_until(lambda: large in share._waiting)
    small = Holder(share, 4)
    large.end()
    assert large.is_in is False
    assert small.settle()


def test_half_of_the_arena_is_left_to_snapshots() -> None:
    share = ArenaShare.of_client(MemoryClient(make_store(), room_bytes=100))
    first, second = Holder(share, 25), Holder(share, 25)
    assert first.settle()
    assert second.settle()
    third = Holder(share, 1)
    wait_until(lambda: third in share._waiting)
    third.is_wanted = False
    assert third.settle() is False
