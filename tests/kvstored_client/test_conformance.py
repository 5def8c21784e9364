"""Clients of a real daemon, of a store in memory, and of that behind a socket behave alike."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kvstored_client import Client
from kvstored_client.testing import MemoryClient, MemoryDaemon, MemoryStore
from tests.kvstored_client.chunk_calls import ARENA_BYTES
from tests.kvstored_client.client_conformance import ClientConformance
from tests.support.daemon import DaemonProcess

Connect = Callable[..., Client]


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}-{time.monotonic_ns()}"


@pytest.fixture
def client(connect: Connect) -> Client:
    return connect()


@pytest.fixture
def pause() -> Callable[[float], None]:
    return time.sleep


def connecting(make: Connect, name: str) -> Iterator[Connect]:
    """Clients in a namespace of the test's own, closed in the end."""
    with ExitStack() as opened:

        def connect(*, salt: str = "", strict: bool = True) -> Client:
            options: dict[str, Any] = {"arena_bytes": ARENA_BYTES, "salt": f"{name}{salt}"}
            return opened.enter_context(make(strict=strict, **options))

        yield connect


class TestDaemon(ClientConformance):
    @pytest.fixture
    def connect(self, shared_daemon: DaemonProcess, name: str) -> Iterator[Connect]:
        yield from connecting(lambda **options: Client(shared_daemon.socket_path, **options), name)


class TestMemoryClient(ClientConformance):
    @pytest.fixture
    def connect(self, name: str) -> Iterator[Connect]:
        store = MemoryStore()
        yield from connecting(lambda **options: MemoryClient(store, **options), name)


class TestMemoryDaemon(ClientConformance):
    @pytest.fixture
    def connect(self, tmp_path: Path, name: str) -> Iterator[Connect]:
        with MemoryDaemon(MemoryStore(), tmp_path) as daemon:
            yield from connecting(lambda **options: Client(daemon.socket_path, **options), name)
