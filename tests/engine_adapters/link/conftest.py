import pytest

from engine_adapters.link.entries import Entries
from kvstored_client.testing import MemoryClient
from tests.engine_adapters.link.clock import MODEL, Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def entries(client: MemoryClient, clock: Clock) -> Entries:
    return Entries(client, MODEL, clock=clock)
