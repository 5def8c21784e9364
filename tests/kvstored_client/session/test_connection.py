import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from kvstored_client.errors import DaemonAbsentError, SessionRefusedError, StoreError
from kvstored_client.session.arena import Arena
from kvstored_client.session.connection import Connection, narrowed
from kvstored_client.session.counters import Counters
from kvstored_client.session.options import Options, resolve_socket
from kvstored_client.session.presence import Presence
from kvstored_client.session.session import Session
from kvstored_contract.reasons import Reason
from kvstored_protos.v1 import session_pb2
from tests.support.waiting import PATIENCE_S, soon


class FakeLink:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.retired = False

    def retire(self) -> None:
        self.retired = True


class World:
    """A clock, and a daemon that is there or not."""

    def __init__(self) -> None:
        self.now = 100.0
        self.is_there = True
        self.refuses_with = ""
        self.told: list[str] = []
        self.attempts = 0
        self.peers: list[socket.socket] = []
        self.is_asked = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.counters = Counters()
        self.connection = Connection(
            Options(socket=resolve_socket("/x"), arena_bytes=4096, salt="s"),
            FakeLink,
            self.counters,
            clock=lambda: self.now,
            opener=self.open_session,
            tell=lambda refusal: self.told.append(str(refusal)),
        )

    def open_session(self, options: Options) -> Session:
        self.attempts += 1
        self.is_asked.set()
        assert self.may_answer.wait(PATIENCE_S)
        if not self.is_there:
            raise DaemonAbsentError("nobody")
        if self.refuses_with:
            raise SessionRefusedError(self.refuses_with, reason=Reason.LIMIT_EXCEEDED, refused=True)
        mine, peer = socket.socketpair()
        self.peers.append(peer)
        presence = Presence(mine, os.eventfd(0))
        welcome = session_pb2.Welcome(epoch=self.attempts, namespace="n")
        return Session(welcome, presence, Arena(memoryview(b""), presence.check))


def absent(call: Callable[[], object]) -> None:
    with pytest.raises(DaemonAbsentError):
        call()


def test_a_live_session_is_used_again() -> None:
    world = World()
    assert world.connection.current() is None
    link = world.connection.ensure()
    assert world.connection.ensure() is link
    assert world.connection.current() is link
    assert world.attempts == 1
    assert world.connection.namespace == "n/s"


def test_an_absent_daemon_is_left_alone_for_the_interval() -> None:
    world = World()
    world.is_there = False
    absent(world.connection.ensure)
    world.now += 0.9
    assert not world.connection.due
    absent(world.connection.ensure)
    assert world.attempts == 1
    world.now += 0.1
    assert world.connection.due
    world.is_there = True
    world.connection.ensure()
    assert world.counters.counts() == {"connect_failures": 1, "connects": 1}


def test_after_a_death_the_next_use_connects_at_once() -> None:
    world = World()
    first = world.connection.ensure()
    world.peers[0].close()
    assert world.connection.current() is None
    second = world.connection.ensure()
    assert first.retired
    assert not second.retired
    assert second.session.epoch == 2


def test_a_closed_connection_stays_closed() -> None:
    world = World()
    link = world.connection.ensure()
    world.connection.close()
    assert link.retired
    assert world.peers[0].recv(1) == b""
    assert world.connection.current() is None
    assert not world.connection.due
    absent(world.connection.ensure)
    assert world.attempts == 1


@contextlib.contextmanager
def connecting(world: World) -> Iterator[Future[FakeLink]]:
    """A thread connects, to a daemon that answers at the end of the block."""
    world.may_answer.clear()
    with ThreadPoolExecutor() as threads:
        try:
            link = threads.submit(world.connection.ensure)
            assert world.is_asked.wait(PATIENCE_S)
            yield link
        finally:
            world.may_answer.set()


def test_close_waited_for_a_thread_that_was_connecting() -> None:
    """Bug: it waited for as long as that did, 10 s for a daemon that says nothing."""
    world = World()
    with connecting(world) as link:
        soon(world.connection.close)
    with pytest.raises(DaemonAbsentError, match="closed"):
        link.result()
    # What the daemon made meanwhile is given back at once.
    assert world.peers[0].recv(1) == b""
    assert world.connection.current() is None
    assert world.counters.counts() == {}


def test_a_use_of_a_closed_client_waited_for_a_thread_that_was_connecting() -> None:
    """Bug: an asyncio client does that on its event loop, which stood still meanwhile."""
    world = World()
    with connecting(world) as link:
        world.connection.close()
        soon(lambda: absent(world.connection.ensure))
    with pytest.raises(DaemonAbsentError, match="closed"):
        link.result()


def test_what_a_daemon_refuses_a_closed_client_is_no_refusal_of_it() -> None:
    world = World()
    world.refuses_with = "no"
    with connecting(world) as link:
        soon(world.connection.close)
    with pytest.raises(SessionRefusedError):
        link.result()
    assert world.connection.refusal == ""


def test_without_a_salt_the_namespace_is_the_servers() -> None:
    assert narrowed("n", "") == "n"


def refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(SessionRefusedError) as caught:
        call()
    assert str(caught.value) == sentence
    assert caught.value.reason is Reason.LIMIT_EXCEEDED
    assert caught.value.refused


def test_a_refused_session_reads_as_no_daemon() -> None:
    """Bug: the daemon's sentence was lost; later calls named an absent daemon."""
    world = World()
    world.refuses_with = "the arena is too large"
    for _ in range(2):
        refused(world.connection.ensure, "the arena is too large")
        refused(world.connection.live, "the arena is too large")
    assert world.attempts == 1
    assert world.connection.refusal == "the arena is too large"
    assert world.counters.counts() == {
        "connect_failures": 1,
        "connect_refused_LIMIT_EXCEEDED": 1,
    }


def test_each_refusal_is_told_once_until_a_session_is_granted() -> None:
    world = World()
    for sentence in ("one", "two", "one", "", "one"):
        world.refuses_with = sentence
        world.now += 1.0
        with contextlib.suppress(StoreError):
            world.connection.ensure()
        if not sentence:
            world.peers[-1].close()
    assert world.told == ["one", "two", "one"]


def test_a_session_ends_the_refusal_and_so_does_an_absent_daemon() -> None:
    world = World()
    for is_there in (True, False):
        world.refuses_with = "no"
        refused(world.connection.ensure, "no")
        world.now += 1.0
        world.refuses_with = ""
        world.is_there = is_there
        with contextlib.suppress(DaemonAbsentError):
            world.connection.ensure()
        assert world.connection.refusal == ""
        world.now += 1.0
        for peer in world.peers:
            peer.close()
        world.is_there = True


def test_a_closed_connection_was_not_refused() -> None:
    world = World()
    world.refuses_with = "no"
    refused(world.connection.ensure, "no")
    world.connection.close()
    assert world.connection.refusal == ""
    absent(world.connection.ensure)


def test_refusals_that_nobody_wants_to_be_told() -> None:
    world = World()
    world.refuses_with = "no"
    connection = Connection(
        Options(socket=resolve_socket("/x"), arena_bytes=4096),
        FakeLink,
        world.counters,
        opener=world.open_session,
    )
    refused(connection.ensure, "no")
