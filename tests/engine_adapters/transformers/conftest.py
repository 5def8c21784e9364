from typing import Any

import pytest

from kvstored_client.testing import MemoryClient, MemoryStore
from tests.engine_adapters.transformers.answers import MIB
from tests.engine_adapters.transformers.models import make_model


@pytest.fixture
def client(store: MemoryStore) -> MemoryClient:
    return MemoryClient(store, arena_bytes=4 * MIB)


@pytest.fixture(scope="module")
def model() -> Any:
    return make_model()
