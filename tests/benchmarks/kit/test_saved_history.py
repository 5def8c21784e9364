"""What is saved of a history for each use, in a store in memory."""

from pathlib import Path

import pytest

from benchmarks.benchmark import BenchmarkError
from benchmarks.kit.saved_history import SavedHistory, check_cold
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.restorer import Restorer
from kvstored_client.testing import MemoryClient, MemoryStore
from tests.engine_adapters.runner.checkpoints import write_llama
from tests.engine_adapters.runner.restored import restored

TOKENS = [7 * n % 97 for n in range(24)]
SCHEDULES = {
    "kv": LayerSchedule.of((Source.KV, 3)),
    "hidden": LayerSchedule.of((Source.HIDDEN, 3)),
    "nothing": LayerSchedule.of((Source.COMPUTE, 3)),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    directory: Path = tmp_path_factory.mktemp("model")
    write_llama(directory)
    return Model.from_directory(directory)


@pytest.fixture
def saved(model: Model) -> SavedHistory:
    return SavedHistory(model, TOKENS, SCHEDULES, chunk_tokens=8, codec="zstd")


def test_each_use_has_states_of_its_own(model: Model, saved: SavedHistory) -> None:
    client = MemoryClient(MemoryStore(), strict=True)
    generated = saved.save(client, new_tokens=3)
    assert len(generated) == 3
    stored = list(filter(saved.stores, saved.uses))
    assert stored == ["kv", "hidden"]
    assert len(client.store.chunks) == len(stored) * len(TOKENS) // 8
    for use in stored:
        restorer = Restorer(client, saved.format(use), model)
        cache = model.make_cache(len(saved.prompt))
        report = restored(restorer, saved.prompt, cache=cache, first_slot=0)
        restorer.close()
        assert report.restored_tokens == len(TOKENS)


def test_a_history_that_was_not_saved_as_a_whole_is_no_base_of_figures(
    saved: SavedHistory,
) -> None:
    with pytest.raises(BenchmarkError, match="of 24 tokens were saved"):
        saved.save(MemoryClient(MemoryStore(), room_bytes=0))


def test_only_a_whole_and_cold_restoration_counts(saved: SavedHistory) -> None:
    saved.check(RestoreReport(restored_tokens=24, device_bytes=1))
    with pytest.raises(BenchmarkError, match="only 16 of 24 tokens were restored"):
        saved.check(RestoreReport(restored_tokens=16))
    with pytest.raises(BenchmarkError, match="5 bytes came from DRAM"):
        saved.check(RestoreReport(restored_tokens=24, dram_bytes=5))
    with pytest.raises(BenchmarkError, match="5 bytes came from DRAM"):
        check_cold(RestoreReport(dram_bytes=5))
