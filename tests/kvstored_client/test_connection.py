import os
import socket
from collections.abc import Callable

import pytest

from kvstored_client.arena import Arena
from kvstored_client.connection import Connection, narrowed
from kvstored_client.counters import Counters
from kvstored_client.errors import DaemonAbsentError
from kvstored_client.options import Options, resolve_socket
from kvstored_client.presence import Presence
from kvstored_client.session import Session
from kvstored_protos.v1 import session_pb2


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
        self.attempts = 0
        self.peers: list[socket.socket] = []
        self.counters = Counters()
        self.connection = Connection(
            Options(socket=resolve_socket("/x"), arena_bytes=4096, salt="s"),
            FakeLink,
            self.counters,
            clock=lambda: self.now,
            opener=self.open_session,
        )

    def open_session(self, options: Options) -> Session:
        self.attempts += 1
        if not self.is_there:
            raise DaemonAbsentError("nobody")
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
    assert world.counters.snapshot() == {"connect_failures": 1, "connects": 1}


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


def test_without_a_salt_the_namespace_is_the_servers() -> None:
    assert narrowed("n", "") == "n"
