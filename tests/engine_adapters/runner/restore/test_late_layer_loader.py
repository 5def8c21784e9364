"""Restorations on a device whose copies are late: what they read stays as it is until then."""

from collections.abc import Callable

import pytest

from engine_adapters.device_copies.testing.delayed_copies import DelayedCopies
from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore import layer_loader
from engine_adapters.runner.restore.restore_options import RestoreOptions, Way
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client.testing import MemoryClient
from tests.engine_adapters.runner.memory import check_released, make_store
from tests.support.waiting import wait_until

CHUNK_TOKENS, CHUNKS = 8, 4


@pytest.mark.parametrize("way", [Way.SPANS, Way.LAYERS])
@pytest.mark.parametrize("source", [Source.KV, Source.HIDDEN])
def test_a_region_stays_until_the_device_has_copied_what_it_had(
    model: Model,
    make_tokens: Callable[[int, int], list[int]],
    monkeypatch: pytest.MonkeyPatch,
    source: Source,
    way: Way,
) -> None:
    copies = DelayedCopies()
    monkeypatch.setattr(layer_loader, "open_copies", lambda device: copies)
    prompt = make_tokens(CHUNKS * CHUNK_TOKENS + 1, 1)
    schedule = LayerSchedule.of((source, model.config.layer_count))
    state_format = StateFormat.of_model(model, "late", schedule=schedule, chunk_tokens=CHUNK_TOKENS)
    with MemoryClient(make_store()) as client:
        engine = Engine(model, cache_tokens=64, sink=(saver := StateSaver(client, state_format)))
        engine.add_request(prompt, new_tokens_max=1)
        engine.run()
        saver.close()
        restorer = Restorer(client, state_format, model, RestoreOptions(way=way))
        cache = model.make_cache(len(prompt))
        with copies.stopped():
            restoration = restorer.begin(prompt, cache=cache, first_slot=0)
            assert restoration is not None
            while not restoration.state.is_over:
                restoration.advance(0)
                restoration.wait(0.01)
            restoration.close()
            # No copy was waited for, and none has been made.
            assert copies.made_count == 0
            assert client.store.regions_in_use == 1
        wait_until(lambda: client.store.regions_in_use == 0)
        restorer.close()
        check_released(client.store)
    assert copies.made_count > 0
    assert copies.overwritten_count == 0
