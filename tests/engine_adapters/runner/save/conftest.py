from collections.abc import Iterator

import pytest

from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client.testing import MemoryClient
from kvstored_protos.v1.sequence_pb2 import CreateSequenceRequest
from tests.engine_adapters.runner.memory import make_store


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    with MemoryClient(make_store()) as client:
        yield client


@pytest.fixture
def saver(client: MemoryClient, state_format: StateFormat) -> Iterator[StateSaver]:
    saver = StateSaver(client, state_format)
    yield saver
    saver.close()
    assert client.store.regions_in_use == 0
    assert all(create.ephemeral for create in client.store.asked(CreateSequenceRequest))
