from typing import Any

import pytest

from engine_adapters.transformers import stored_prefix
from kvstored_client.testing import MemoryClient, MemoryStore
from tests.engine_adapters.breakers import calm
from tests.engine_adapters.transformers.answers import MIB
from tests.engine_adapters.transformers.models import make_model


@pytest.fixture(autouse=True)
def _no_call_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_prefix, "Breaker", calm)


@pytest.fixture
def client(store: MemoryStore) -> MemoryClient:
    return MemoryClient(store, arena_bytes=4 * MIB)


@pytest.fixture(scope="module")
def model() -> Any:
    return make_model()
