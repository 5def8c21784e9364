"""What is saved after a round is what would be saved beside it."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.conversations.saving import LateSink
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client.testing import MemoryClient, StoredChunk
from tests.engine_adapters.runner.checkpoints import write_llama
from tests.engine_adapters.runner.memory import make_store


@pytest.fixture
def model(tmp_path: Path) -> Model:
    write_llama(tmp_path)
    return Model.from_directory(tmp_path)


def saved(model: Model, *, is_late: bool) -> dict[bytes, StoredChunk]:
    chunks: dict[bytes, StoredChunk] = {}
    with MemoryClient(make_store(chunks)) as client:
        saver = StateSaver(client, StateFormat.of_model(model, "saving", chunk_tokens=8))
        sink: Any = LateSink(saver) if is_late else saver
        engine = Engine(model, cache_tokens=64, requests_max=1, sink=sink)
        for first in (1, 2):
            engine.add_request(range(first, first + 20), new_tokens_max=9, stop_token_ids=())
        engine.run()
        saver.finish()
        saver.close()
    return chunks


def test_both_ways_of_saving_store_the_same(model: Model) -> None:
    late, overlapped = saved(model, is_late=True), saved(model, is_late=False)
    assert late
    assert {key: chunk.slices for key, chunk in late.items()} == {
        key: chunk.slices for key, chunk in overlapped.items()
    }
