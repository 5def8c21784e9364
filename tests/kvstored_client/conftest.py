"""A store in memory behind a socket, and clients of it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from kvstored_client import AsyncClient, Client, LayerState, StateKind, StateLayout
from kvstored_client.testing import MemoryDaemon, MemoryStore

ARENA_BYTES = 1 << 20
PAYLOAD_BYTES = ARENA_BYTES - ARENA_BYTES // 16
"""What is not kept for boards."""


@pytest.fixture
def layout() -> StateLayout:
    """Three layers of 4096, 8192 and 2048 bytes in a chunk of 16 tokens."""
    return StateLayout(
        model="m",
        dtype="float32",
        layers=(
            LayerState(StateKind.KV, 256),
            LayerState(StateKind.HIDDEN, 512),
            LayerState(StateKind.KV, 128),
        ),
        chunk_tokens=16,
    )


@pytest.fixture
def memory() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def daemon(memory: MemoryStore, tmp_path: Path) -> Iterator[MemoryDaemon]:
    with MemoryDaemon(memory, tmp_path) as daemon:
        yield daemon


@pytest.fixture
def client(daemon: MemoryDaemon) -> Iterator[Client]:
    with Client(daemon.socket_path, arena_bytes=ARENA_BYTES, reconnect_interval_s=0) as client:
        yield client


@pytest.fixture
def strict_client(daemon: MemoryDaemon) -> Iterator[Client]:
    with Client(daemon.socket_path, arena_bytes=ARENA_BYTES, strict=True) as client:
        yield client


@pytest_asyncio.fixture
async def async_client(daemon: MemoryDaemon) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(
        daemon.socket_path, arena_bytes=ARENA_BYTES, reconnect_interval_s=0
    ) as client:
        yield client
