"""Conversations in a store in memory."""

from collections.abc import Iterator

import pytest

from engine_adapters.conversation.conversations import Conversations
from kvstored_client.testing import MemoryClient, MemoryStore

MODEL = "talking"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def client(store: MemoryStore) -> Iterator[MemoryClient]:
    with MemoryClient(store) as client:
        yield client


@pytest.fixture
def talks(client: MemoryClient) -> Conversations:
    return Conversations(client, MODEL)
