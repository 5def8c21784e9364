"""What the store hears of a queue, and that nobody waits for it."""

import threading
import time

import pytest
from google.protobuf.message import Message

from engine_adapters.hints import queue_teller
from engine_adapters.hints.queue_teller import QueueTeller
from kvstored_client import Client, LayerState, QueueEntry, StateKind, StateLayout
from kvstored_client.testing import CallName, MemoryClient, MemoryStore
from kvstored_protos.v1.sequence_pb2 import HintRequest
from tests.support.waiting import SOON_S, soon, wait_until

LAYOUT = StateLayout(
    model="m", dtype="float32", layers=(LayerState(StateKind.KV, 64),), chunk_tokens=16
)

LONG_ENOUGH_TO_TELL_S = 0.1
"""By then a teller that does not wait has told."""


def entry(name: str, place: int) -> QueueEntry:
    return QueueEntry(name=name, place=place, keys=[bytes(32)], layout=LAYOUT)


def waiting(store: MemoryStore) -> list[str]:
    """Who waits, as the store knows it."""
    return [name for session in store.sessions.values() for name in session.waiting]


def heard(store: MemoryStore, names: list[str]) -> None:
    wait_until(lambda: waiting(store) == names, within_s=SOON_S)


def test_changes_that_come_while_a_call_is_on_its_way_are_one_call() -> None:
    store = MemoryStore()
    may_go, is_asked = threading.Event(), threading.Event()

    def hold(request: Message) -> None:
        if isinstance(request, HintRequest):
            is_asked.set()
            assert may_go.wait(SOON_S)

    store.faults.before = hold
    with MemoryClient(store) as client:
        teller = QueueTeller(client)
        teller.enter(entry("0", 0))
        assert is_asked.wait(SOON_S)
        for number in range(1, 20):
            soon(lambda number=number: teller.enter(entry(f"{number}", number)))  # type: ignore[misc]
        teller.leave("0")
        may_go.set()
        heard(store, [f"{number}" for number in range(1, 20)])
        assert len(store.asked(HintRequest)) == 2
        teller.close()
    closed = QueueTeller(MemoryClient(store))
    closed.close()
    closed.enter(entry("late", 99))
    assert closed._thread is None
    assert "late" not in waiting(store)


def test_what_runs_at_once_was_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hears of a request that leaves the queue before it has settled."""
    monkeypatch.setattr(queue_teller, "SETTLE_S", 3600.0)
    store = MemoryStore()
    with MemoryClient(store) as client:
        teller = QueueTeller(client)
        teller.leave("never waited")
        teller.enter(entry("runs at once", 1))
        time.sleep(LONG_ENOUGH_TO_TELL_S)
        teller.leave("runs at once")
        teller.close()
        assert not store.asked(HintRequest)


def test_a_store_that_lost_the_queue_gets_the_whole_one() -> None:
    store = MemoryStore()
    with MemoryClient(store) as client:
        teller = QueueTeller(client)
        teller.enter(entry("a", 1))
        heard(store, ["a"])
        store.restart()
        wait_until(client.available, within_s=SOON_S)
        teller.enter(entry("b", 2))
        heard(store, ["a", "b"])
        teller.close()


def test_a_strict_client_of_no_daemon_and_one_that_refuses_raise_nothing() -> None:
    store = MemoryStore()
    store.faults.silent.add(CallName.SEQUENCE_HINT)
    with MemoryClient(store, strict=True) as client:
        teller = QueueTeller(client)
        teller.enter(entry("a", 1))
        wait_until(lambda: bool(store.asked(HintRequest)), within_s=SOON_S)
        store.faults.silent.clear()
        teller.enter(entry("b", 2))
        heard(store, ["a", "b"])
        teller.close()
    absent = QueueTeller(Client("/nowhere/kvstored.sock"))
    absent.enter(entry("a", 1))
    soon(absent.close)


def test_a_process_without_another_thread_tells_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    store = MemoryStore()
    with MemoryClient(store) as client:
        teller = QueueTeller(client)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            teller.enter(entry("a", 1))
            teller.close()
        teller = QueueTeller(client)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            teller.enter(entry("a", 1))
        teller.enter(entry("b", 2))
        heard(store, ["a", "b"])
        teller.close()
