"""States that are stored with a codec, through a real daemon: in every mode, and damaged."""

from collections.abc import Iterator
from dataclasses import dataclass

import hypothesis
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from engine_adapters.restore import ComputeCost, LayerSchedule, LoadCost, Source
from engine_adapters.runner.engine.engine import Engine
from engine_adapters.runner.engine.request import Completion
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from engine_adapters.runner.model.step import NullSink
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.restore_options import RestoreOptions, Way
from engine_adapters.runner.restore.restorer import Restorer
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client, StateKind
from tests.support import labs
from tests.support.daemon import DaemonProcess
from tests.support.seeds import seed
from tests.support.waiting import PATIENCE_S
from tests.system.conversation import PROMPT_CHUNKS as LABORATORY_CHUNKS
from tests.system.conversation import Laboratory

CHUNK_TOKENS = 64
CHUNKS = 6
LAYERS = 6
NEW_TOKENS = 8
TOKEN_BUDGET = 96
HEADER_BYTES = 4096
EXACT = 1e-5
PROMPT = [(7 * n * n + 3 * n) % 250 for n in range(CHUNK_TOKENS * CHUNKS)] + [1, 2, 3]
SCHEDULES = {
    "kv": LayerSchedule.of((Source.KV, LAYERS)),
    "hidden": LayerSchedule.of((Source.HIDDEN, LAYERS)),
    "hcache": LayerSchedule.of((Source.COMPUTE, 1), (Source.HIDDEN, 4), (Source.KV, 1)),
    "naive_hybrid": LayerSchedule.of((Source.COMPUTE, 2), (Source.KV, 4)),
    "cake": LayerSchedule.of((Source.KV, LAYERS)),
    "cake of hidden states": LayerSchedule.of((Source.HIDDEN, LAYERS)),
}
MODES = sorted(SCHEDULES, key=["hcache", "cake"].__contains__, reverse=True)
"""First those that have every kind of source."""
LOSS_MAX = {"int8": 1 / 127, "int3": 1 / 7, "cachegen": 0.75}
"""Greatest error as a part of the range of a slice's values: a step, or half of it."""
BYTES_MAX = {"zstd": 1.05, "int8": 0.3, "int3": 0.15, "cachegen": 0.15}
"""What moves at most, as a part of raw float32 states; headers and alignment included."""


class Recorder(NullSink):
    """Keeps what a layout of this format stores of every token that is computed, in order."""

    def __init__(self, state_format: StateFormat) -> None:
        self._kinds = [state.kind for state in state_format.layout.layers]
        self._parts: list[list[Tensor]] = [[] for _ in self._kinds]

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        is_hidden = self._kinds[layer] is StateKind.HIDDEN
        self._parts[layer].append(hidden.clone() if is_hidden else torch.stack((keys, values)))

    def slices(self, layer: int) -> list[Tensor]:
        """Of the prompt's chunks."""
        axis = 0 if self._kinds[layer] is StateKind.HIDDEN else 1
        states = torch.cat(self._parts[layer], dim=axis)
        return list(states.narrow(axis, 0, CHUNKS * CHUNK_TOKENS).split(CHUNK_TOKENS, dim=axis))


@dataclass
class Run:
    completion: Completion
    cache: KvCache


def run(
    model: Model,
    *,
    sink: NullSink | StateSaver | None = None,
    restorer: Restorer | None = None,
) -> Run:
    engine = Engine(
        model,
        cache_tokens=len(PROMPT) + NEW_TOKENS,
        token_budget=TOKEN_BUDGET,
        requests_max=1,
        sink=sink,
        restorer=restorer,
    )
    engine.add_request(PROMPT, new_tokens_max=NEW_TOKENS, stop_token_ids=())
    (completion,) = engine.run()
    if restorer is not None:
        restorer.close()
    return Run(completion, engine._cache)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("daemon")) as process:
        yield process


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    directory = tmp_path_factory.mktemp("model")
    shape = RandomModelShape(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        layer_count=LAYERS,
        head_count=4,
        kv_head_count=4,
        position_count=2048,
    )
    write_random_model(directory, shape, ["the quick brown fox " * 50])
    return Model.from_directory(directory)


def format_of(model: Model, mode: str, codec: str, chunk_tokens: int = CHUNK_TOKENS) -> StateFormat:
    states = StateFormat.of_model(model, mode, schedule=SCHEDULES[mode], chunk_tokens=chunk_tokens)
    return states.encoded(codec)


def restorer_of(
    model: Model, client: Client, state_format: StateFormat, mode: str, *, slowness: float = 1e6
) -> Restorer:
    """``slowness``: how many times as long computing is expected to take as it may.

    By default so many that a busy machine may stall the store for long, and all is loaded.
    """
    if not mode.startswith("cake"):
        return Restorer(client, state_format, model, RestoreOptions(step_tokens=TOKEN_BUDGET))
    return Restorer(
        client,
        state_format,
        model,
        RestoreOptions(
            way=Way.BOTH_ENDS,
            compute=ComputeCost(step_s=slowness * 0.001, token_s=slowness * 1e-4, attention_s=0.0),
            load=LoadCost(chunk_s=1e-4 * CHUNK_TOKENS),
            step_tokens=TOKEN_BUDGET,
            opening_s_max=PATIENCE_S,
        ),
    )


def save(model: Model, client: Client, state_format: StateFormat) -> Run:
    saver = StateSaver(client, state_format)
    computed = run(model, sink=saver)
    report = saver.finish()
    saver.close()
    assert report.dropped_tokens == 0
    assert report.saved_tokens == CHUNKS * CHUNK_TOKENS
    return computed


@labs.ENCODED_MODES.first("mode", MODES, name=str)
def test_without_a_loss_the_tokens_are_equal(
    mode: str, model: Model, client: Client, daemon: DaemonProcess
) -> None:
    state_format = format_of(model, mode, "zstd")
    computed = save(model, client, state_format)
    for is_cold in (False, True):
        if is_cold:
            daemon.restart()
        restored = run(model, restorer=restorer_of(model, client, state_format, mode))
        report = restored.completion.restore
        assert report.restored_tokens == CHUNKS * CHUNK_TOKENS
        assert restored.completion.token_ids == computed.completion.token_ids
        for ours, theirs in (
            (restored.cache.keys, computed.cache.keys),
            (restored.cache.values, computed.cache.values),
        ):
            assert (ours - theirs)[:, : len(PROMPT)].abs().max() < EXACT
    assert report.dram_bytes == 0
    assert report.device_bytes < state_format.states.chunk_bytes() * CHUNKS * BYTES_MAX["zstd"]


def test_both_ends_meet_in_an_encoded_history(model: Model, client: Client) -> None:
    state_format = format_of(model, "cake", "zstd")
    computed = save(model, client, state_format)
    restorer = restorer_of(model, client, state_format, "cake", slowness=1.0)
    restored = run(model, restorer=restorer)
    assert restored.completion.token_ids == computed.completion.token_ids


@pytest.mark.parametrize("mode", ["kv", "hidden", "hcache", "cake"])
@pytest.mark.parametrize("codec", LOSS_MAX)
def test_what_comes_back_is_what_the_codec_makes_of_the_states(
    codec: str, mode: str, model: Model, client: Client
) -> None:
    """So its bounds, which have tests of their own, are those of a restored cache."""
    state_format = format_of(model, mode, codec)
    save(model, client, state_format)
    restored = run(model, restorer=restorer_of(model, client, state_format, mode))
    assert restored.completion.restore.restored_tokens == CHUNKS * CHUNK_TOKENS
    recorder = Recorder(state_format)
    computed = run(model, sink=recorder)
    wanted = model.make_cache(len(PROMPT) + NEW_TOKENS)
    loader = LayerLoader(model, state_format)
    assert state_format.codec is not None
    for layer in range(state_format.recomputed_layers, LAYERS):
        exact = recorder.slices(layer)
        decoded = torch.empty(CHUNKS, *state_format.slice_shape(layer))
        for states, out in zip(exact, decoded, strict=True):
            state_format.codec.decode(layer, state_format.codec.codecs[layer].encode(states), out)
            loss = (out - states).abs().max()
            assert 0 < loss <= LOSS_MAX[codec] * (states.max() - states.min())
        loader.load(layer, decoded, cache=wanted, first_slot=0, first_position=0)
        for ours, theirs in (
            (restored.cache.keys, wanted.keys),
            (restored.cache.values, wanted.values),
        ):
            difference = (ours - theirs)[layer, : CHUNKS * CHUNK_TOKENS].abs().max()
            assert difference < EXACT
        assert not torch.equal(restored.cache.values[layer], computed.cache.values[layer])


@pytest.mark.parametrize("mode", ["kv", "hidden", "cake"])
@pytest.mark.parametrize("codec", LOSS_MAX)
def test_what_moves_is_as_small_as_the_codec_makes_it(
    codec: str, mode: str, model: Model, client: Client, daemon: DaemonProcess
) -> None:
    """In one chunk: its slices are so long that whole blocks of the device are no matter."""
    state_format = format_of(model, mode, codec, CHUNKS * CHUNK_TOKENS)
    save(model, client, state_format)
    daemon.restart()
    restored = run(model, restorer=restorer_of(model, client, state_format, mode))
    report = restored.completion.restore
    assert report.restored_tokens == CHUNKS * CHUNK_TOKENS
    assert report.dram_bytes == 0
    assert 0 < report.device_bytes < BYTES_MAX[codec] * state_format.states.chunk_bytes()


@pytest.fixture(scope="module", params=["raw", "zstd"])
def laboratory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Laboratory:
    folder = tmp_path_factory.mktemp("laboratory")
    return Laboratory(folder, is_cake=True, codec=request.param)


@labs.DAMAGED_GAPS.sizes("examples")
def test_damaged_chunks_are_gaps(
    laboratory: Laboratory, daemon: DaemonProcess, examples: int
) -> None:
    @hypothesis.seed(seed())
    @settings(max_examples=examples, phases=[Phase.generate])
    @given(
        damaged=st.sets(st.integers(0, LABORATORY_CHUNKS - 1), min_size=1, max_size=6),
        place=st.integers(0, 2047),
    )
    def check(damaged: set[int], place: int) -> None:
        check_gaps(laboratory, daemon, damaged, place)

    check()


def check_gaps(
    laboratory: Laboratory, daemon: DaemonProcess, damaged: set[int], place: int
) -> None:
    """Of both ends: the tokens are equal, and what was damaged is stored again."""
    with Client(daemon.socket_path, arena_bytes="32MiB", reconnect_interval_s=0.0) as client:
        expected_ids = laboratory.run(client).generated_ids
        keys = laboratory.keys(client)
        found = [client.admin.inspect(keys[chunk].hex()).chunk for chunk in damaged]
        assert daemon.terminate() == 0
        for chunk in found:
            with daemon.devices[chunk.device_index].open("r+b") as device:
                device.seek(chunk.offset + HEADER_BYTES + place)
                byte = device.read(1)[0]
                device.seek(-1, 1)
                device.write(bytes([byte ^ 0x10]))
        daemon.start()
        outcome = laboratory.run(client)
        assert outcome.generated_ids == expected_ids
        chunk_tokens = laboratory.format.layout.chunk_tokens
        assert outcome.restore.restored_tokens == (LABORATORY_CHUNKS - len(damaged)) * chunk_tokens
        # A second read confirms damage before the chunk is gone: one that was computed sooner
        # than that was still there, and is stored behind the next run.
        while client.match(laboratory.format.layout, keys).chunk_count < LABORATORY_CHUNKS:
            assert laboratory.run(client).generated_ids == expected_ids
