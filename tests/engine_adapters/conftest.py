"""A store in memory, for tests that need no more of one."""

from collections.abc import Iterator

import pytest

from kvstored_client.testing import MemoryClient, MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def client(store: MemoryStore) -> Iterator[MemoryClient]:
    with MemoryClient(store) as client:
        yield client
