"""Tokens with and without the store, on each device: states saved there and restored there.

On CPUs also with copies that come late and in another order, and spoil what nobody waited for.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine_adapters.device_copies.testing.delayed_copies import DelayedCopies
from engine_adapters.restore import ComputeCost, LayerSchedule, LoadCost, Source
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from engine_adapters.runner.restore import layer_loader
from engine_adapters.runner.restore.restore_options import RestoreOptions, Way
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save import saver as saver_module
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client
from tests.engine_adapters.runner.restored import restored
from tests.support.daemon import DaemonProcess
from tests.support.waiting import PATIENCE_S
from tests.system.test_modes import run

pytestmark = pytest.mark.gpu

CHUNK_TOKENS, CHUNKS, LAYERS = 16, 10, 4
PROMPT = [(7 * n * n + 3 * n) % 256 for n in range(CHUNK_TOKENS * CHUNKS)] + [1, 2, 3]
LATE_S = 0.001
DEVICES = {
    "cpu": ("cpu", torch.float32),
    "gathered": ("cpu", torch.float32),
    "cpu bfloat16": ("cpu", torch.bfloat16),
    "late": ("cpu", torch.float32),
    "cuda": ("cuda", torch.float32),
    "cuda bfloat16": ("cuda", torch.bfloat16),
}
ALL_LAYERS = 1 << 40
"""More bytes than a step has: all its layers are gathered for one copy."""
EXACT = {torch.float32: 1e-4, torch.bfloat16: 0.25}
"""Largest difference of a state. States of bfloat16 that went through layers of another batch
shape are as far apart as those of two prefills (``test_bfloat16``)."""
LOSSLESS = "zstd"
"""Keys and values that are decoded before they get to the device."""
ALL_KV = LayerSchedule.of((Source.KV, LAYERS))
BOTH_ENDS = RestoreOptions(
    way=Way.BOTH_ENDS,
    # Hours are more than any machine stalls the store: what is there is loaded, from its end.
    compute=ComputeCost(step_s=1e3, token_s=1e2, attention_s=0.0),
    load=LoadCost(chunk_s=1e-4),
    step_tokens=48,
    opening_s_max=PATIENCE_S,
)
CASES = {
    "kv": (ALL_KV, RestoreOptions()),
    LOSSLESS: (ALL_KV, RestoreOptions()),
    "hidden": (LayerSchedule.of((Source.HIDDEN, LAYERS)), RestoreOptions()),
    "hcache": (
        LayerSchedule.of((Source.COMPUTE, 1), (Source.HIDDEN, 2), (Source.KV, 1)),
        RestoreOptions(step_tokens=48),
    ),
    "cake": (ALL_KV, BOTH_ENDS),
    "layers": (ALL_KV, RestoreOptions(way=Way.LAYERS)),
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    shape = RandomModelShape(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=96,
        layer_count=LAYERS,
        head_count=4,
        kv_head_count=4,
        position_count=512,
    )
    write_random_model(directory, shape, ["the quick brown fox " * 50])
    return directory


@pytest.fixture
def daemon(shared_daemon: DaemonProcess) -> DaemonProcess:
    return shared_daemon


@pytest.fixture
def salt(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return name


@pytest.fixture(params=DEVICES)
def model(
    request: pytest.FixtureRequest, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Model]:
    device, dtype = DEVICES[request.param]
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    if request.param == "gathered":
        monkeypatch.setattr(saver_module, "gathered_bytes", lambda device: ALL_LAYERS)
        monkeypatch.setattr(saver_module, "gathered_steps", lambda device: 3)
    copies = DelayedCopies(delay_s=LATE_S)
    if request.param == "late":
        for module in (layer_loader, saver_module):
            monkeypatch.setattr(module, "open_copies", lambda device: copies)
    yield Model.from_directory(directory, dtype=dtype, device=device)
    assert not copies.overwritten_count


def test_a_restorer_alone_pins_the_memory_that_states_come_from(
    directory: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """*Bug:* only savers did, so that a GPU copied through CUDA's own buffers where none saved."""
    copies = DelayedCopies()
    monkeypatch.setattr(layer_loader, "open_copies", lambda device: copies)
    model = Model.from_directory(directory)
    restorer = Restorer(client, StateFormat.of_model(model, "pins", chunk_tokens=16), model)
    for _ in range(2):
        restored(restorer, PROMPT, cache=model.make_cache(len(PROMPT)))
    # Whatever closes it gives the memory up.
    assert copies.pinned == [client.arena_memory, None] * 2


def difference(found: KvCache, wanted: KvCache, token_count: int) -> float:
    """The largest one of any key or value."""
    pairs = ((found.keys, wanted.keys), (found.values, wanted.values))
    return max(
        float((ours[:, :token_count].float() - theirs[:, :token_count].float()).abs().max())
        for ours, theirs in pairs
    )


@pytest.mark.parametrize("name", CASES)
def test_tokens_and_states_are_those_of_a_prefill(
    request: pytest.FixtureRequest, model: Model, client: Client, name: str
) -> None:
    schedule, options = CASES[name]
    state_format = StateFormat.of_model(
        model, request.node.name, schedule=schedule, chunk_tokens=CHUNK_TOKENS
    )
    if name == LOSSLESS:
        state_format = state_format.encoded(name)
    saver = StateSaver(client, state_format, device=model.device)
    computed, wanted = run(model, PROMPT, saver=saver, token_budget=64)
    assert saver.finish().dropped_tokens == 0
    saver.close()
    restorer = Restorer(
        client, state_format, model, replace(options, span_bytes=state_format.span_bytes(4))
    )
    completed, found = run(model, PROMPT, restorer=restorer, token_budget=64)
    assert completed.restore.restored_tokens == CHUNK_TOKENS * CHUNKS
    assert completed.token_ids == computed.token_ids
    assert difference(found._cache, wanted._cache, len(PROMPT)) < EXACT[model.dtype]
