"""Leases that a thread takes and gives back while the engine goes on."""

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from engine_adapters.runner.link import entry_leases
from engine_adapters.runner.link.entry_leases import THREAD_NAME, EntryLeases
from kvstored_client import Lease
from tests.support.waiting import SOON_S, wait_until


class FakeLease:
    """Counts how often it was released, and on which threads."""

    def __init__(self) -> None:
        self.released: list[str] = []

    def release(self) -> bool:
        self.released.append(threading.current_thread().name)
        return True


class Pinning:
    """A call to the store that may hang."""

    def __init__(self) -> None:
        self.lease = FakeLease()
        self.may_end = threading.Event()
        self.begun: list[str] = []

    def __call__(self) -> Lease:
        self.begun.append(threading.current_thread().name)
        assert self.may_end.wait(SOON_S)
        return cast("Lease", self.lease)


@pytest.fixture
def leases() -> Iterator[EntryLeases]:
    made = EntryLeases()
    yield made
    made.close()
    assert not any(thread.name == THREAD_NAME for thread in threading.enumerate())


def test_neither_call_is_made_by_who_asks(leases: EntryLeases) -> None:
    pin = Pinning()
    held = leases.hold(pin)
    wait_until(lambda: bool(pin.begun), within_s=SOON_S)
    # It hangs: whoever asks for another one, or wants none any more, goes on.
    leases.let_go(leases.hold(Pinning()))
    leases.let_go(held)
    leases.let_go(held)
    assert not pin.lease.released
    pin.may_end.set()
    wait_until(lambda: bool(pin.lease.released), within_s=SOON_S)
    assert pin.begun == pin.lease.released == [THREAD_NAME]


def test_who_is_over_before_its_turn_makes_no_call(leases: EntryLeases) -> None:
    first, second, third = Pinning(), Pinning(), Pinning()
    held = [leases.hold(pin) for pin in (first, second, third)]
    wait_until(lambda: bool(first.begun), within_s=SOON_S)
    leases.let_go(held[1])
    for pin in (first, second, third):
        pin.may_end.set()
    wait_until(lambda: bool(third.begun), within_s=SOON_S)
    assert not second.begun


def test_what_is_held_at_the_end_is_given_back() -> None:
    leases, pins = EntryLeases(), [Pinning(), Pinning()]
    for pin in pins:
        pin.may_end.set()
        leases.hold(pin)
    wait_until(lambda: bool(pins[1].begun), within_s=SOON_S)
    leases.close()
    assert [len(pin.lease.released) for pin in pins] == [1, 1]


def test_a_store_that_hangs_holds_up_the_end_for_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any call may take its whole deadline: what is left ends with the session."""
    monkeypatch.setattr(entry_leases, "CLOSE_S", 0.0)
    leases, pins = EntryLeases(), [Pinning(), Pinning()]
    for pin in pins:
        leases.hold(pin)
    wait_until(lambda: bool(pins[0].begun), within_s=SOON_S)
    closing = threading.Thread(target=leases.close)
    closing.start()
    pins[0].may_end.set()
    closing.join(SOON_S)
    assert not closing.is_alive()
    assert not pins[1].begun


def test_a_call_that_fails_costs_its_lease_only(leases: EntryLeases) -> None:
    def fail() -> Any:
        raise RuntimeError("broken")

    pin = Pinning()
    pin.may_end.set()
    leases.let_go(leases.hold(fail))
    broken, held = leases.hold(fail), leases.hold(pin)
    wait_until(lambda: bool(pin.begun), within_s=SOON_S)
    leases.let_go(broken)
    leases.let_go(held)
    wait_until(lambda: bool(pin.lease.released), within_s=SOON_S)


def test_a_thread_that_could_not_be_started_ended_all_leases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: it counted as started, so nobody took a lease any more, and the end was an error."""
    leases, pin = EntryLeases(), Pinning()
    pin.may_end.set()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            leases.hold(cast("Any", Pinning()))
    # What nobody has a hold of is not served later.
    assert not leases._orders
    assert not leases._holds
    held = leases.hold(cast("Any", pin))
    wait_until(lambda: held.lease is not None)
    leases.close()
    assert pin.lease.released
