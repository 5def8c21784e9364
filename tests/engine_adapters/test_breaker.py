import pytest

from engine_adapters.breaker import PAUSE_S, SLOW_LOOKUP_S, Breaker


class World:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.breaker = Breaker(clock=lambda: self.now_s)

    def call(self, duration_s: float) -> None:
        with self.breaker.watch():
            self.now_s += duration_s


@pytest.fixture
def world() -> World:
    return World()


def test_fast_calls_are_all_admitted(world: World) -> None:
    for _ in range(3):
        assert world.breaker.admits()
        world.call(SLOW_LOOKUP_S)
    assert world.breaker.is_closed


def test_nothing_is_admitted_while_a_call_hangs(world: World) -> None:
    with world.breaker.watch():
        assert world.breaker.call_count == 1
        world.now_s += SLOW_LOOKUP_S
        assert world.breaker.admits()
        assert world.breaker.is_closed
        world.now_s += 0.1
        assert not world.breaker.admits()
        assert not world.breaker.is_closed


def test_one_call_in_each_pause_tries_a_daemon_that_was_slow(world: World) -> None:
    world.call(SLOW_LOOKUP_S + 0.1)
    world.now_s += PAUSE_S - 0.1
    assert not world.breaker.admits()
    world.now_s += 0.1
    assert not world.breaker.is_closed
    assert world.breaker.admits()
    assert not world.breaker.admits(), "one tries it, the others do not wait"
    world.now_s += PAUSE_S
    assert world.breaker.admits()


def test_fast_answer_ends_the_doubt(world: World) -> None:
    world.call(SLOW_LOOKUP_S + 0.1)
    world.now_s += PAUSE_S
    assert world.breaker.admits()
    world.call(0.0)
    assert world.breaker.is_closed
    assert world.breaker.admits()


def test_call_that_raises_has_ended(world: World) -> None:
    with pytest.raises(KeyError), world.breaker.watch():
        raise KeyError
    world.now_s += 2 * SLOW_LOOKUP_S
    assert world.breaker.admits()
