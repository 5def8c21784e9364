"""Conversations in a store in memory."""

import pytest

from engine_adapters.conversation.conversations import Conversations
from kvstored_client.testing import MemoryClient

MODEL = "talking"


@pytest.fixture
def talks(client: MemoryClient) -> Conversations:
    return Conversations(client, MODEL)
