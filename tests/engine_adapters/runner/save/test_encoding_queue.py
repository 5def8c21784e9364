"""Saving with a codec: rows become chunks here, and chunks become payloads."""

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch

from engine_adapters.restore import LayerSchedule, Source
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.save.encoding_queue import EncodingQueue
from engine_adapters.runner.save.save_queue import SaveReport
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.save.snapshot import Snapshot
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Ack, Reason
from kvstored_client.testing import MemoryClient
from kvstored_protos.v1.store_pb2 import AppendRequest, PutRequest
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.memory import at
from tests.engine_adapters.runner.steps import segments_of
from tests.support.waiting import wait_until

MakeTokens = Callable[[int, int], list[int]]
HIDDEN, KV_HEADS, HEAD_DIM = 32, 2, 8
SCHEDULE = LayerSchedule.of((Source.COMPUTE, 1), (Source.HIDDEN, 1), (Source.KV, 1))


@pytest.fixture
def state_format(model: Model) -> StateFormat:
    """Nothing of the first layer, the inputs of the second, KV of the third."""
    states = StateFormat.of_model(model, "encoded", schedule=SCHEDULE, chunk_tokens=CHUNK_TOKENS)
    return states.encoded("zstd")


@pytest.fixture
def saver(client: MemoryClient, state_format: StateFormat) -> Iterator[StateSaver]:
    saver = StateSaver(client, state_format)
    yield saver
    saver.close()
    assert client.store.regions_in_use == 0
    assert client.store.asked(AppendRequest) == []


def states_of(position: int, shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(position)
    return torch.randn(shape, generator=generator)


def step(saver: StateSaver, *parts: tuple[int, int, int], value: float | None = None) -> None:
    """One step of (request_id, first position, token count); ``value`` takes all states' place."""
    segments, positions = segments_of(parts)
    hidden = torch.stack([states_of(position, (HIDDEN,)) for position in positions])
    halves = torch.stack(
        [states_of(position, (2, KV_HEADS, HEAD_DIM)) for position in positions], dim=1
    )
    if value is not None:
        hidden.fill_(value)
    saver.begin_step(segments)
    for layer in range(3):
        saver.take(layer, hidden, halves[0], halves[1])
    saver.end_step()


def check_chunk(client: MemoryClient, states: StateFormat, key: bytes, first_position: int) -> None:
    nothing, hidden, halves = client.store.chunks[key].slices
    assert nothing == b""
    assert states.codec is not None
    positions = range(first_position, first_position + CHUNK_TOKENS)
    out = torch.empty(CHUNK_TOKENS, HIDDEN)
    states.codec.decode(1, hidden, out)
    assert torch.equal(out, torch.stack([states_of(each, (HIDDEN,)) for each in positions]))
    out = torch.empty(2, CHUNK_TOKENS, KV_HEADS, HEAD_DIM)
    states.codec.decode(2, halves, out)
    wanted = [states_of(each, (2, KV_HEADS, HEAD_DIM)) for each in positions]
    assert torch.equal(out, torch.stack(wanted, dim=1))


def test_rows_of_interleaved_sequences_reach_their_chunks(
    client: MemoryClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    tokens = [make_tokens(40, seed) for seed in range(2)]
    saver.begin_request(0, tokens[0], 0)
    saver.begin_request(1, tokens[1], 2 * CHUNK_TOKENS)
    step(saver, (0, 0, 5), (1, 16, 20))
    step(saver, (1, 36, 1), (0, 5, 30))
    step(saver, (0, 35, 5), (1, 37, 3))
    saver.end_request(0)
    saver.end_request(1)
    assert saver.finish() == SaveReport(saved_tokens=40 + 40 - 2 * CHUNK_TOKENS)
    keys = [client.prefix_keys(state_format.layout, each) for each in tokens]
    assert set(client.store.chunks) == {*keys[0], *keys[1][2:]}
    for request_id, first_chunk in ((0, 0), (1, 2)):
        for index in range(first_chunk, 5):
            key = keys[request_id][index]
            check_chunk(client, state_format, key, index * CHUNK_TOKENS + 1000 * request_id)
            parent = keys[request_id][index - 1] if index else b""
            assert client.store.chunks[key].parent_key == parent


def test_incomplete_chunks_are_forgotten(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    saver.begin_request(0, make_tokens(40, 1), 0)
    step(saver, (0, 0, 2 * CHUNK_TOKENS - 1))
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=CHUNK_TOKENS)


def test_puts_are_of_what_was_encoded_while_steps_waited(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    """And each chunk is durable before it counts."""
    is_held = threading.Event()
    client.store.faults.before = at(PutRequest, partial(is_held.wait, 60))
    saver.begin_request(0, make_tokens(80, 1), 0)
    # Behind the snapshots of the steps the arena may have room for a smaller one only.
    wait_until(lambda: saver._queue._region is not None)  # type: ignore[attr-defined]
    step(saver, (0, 0, CHUNK_TOKENS))
    wait_until(lambda: bool(client.store.asked(PutRequest)))
    for first in range(CHUNK_TOKENS, 64, CHUNK_TOKENS):
        step(saver, (0, first, CHUNK_TOKENS))
    is_held.set()
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=64)
    assert [Ack(put.ack) for put in client.store.asked(PutRequest)] == [Ack.DURABLE] * 2


def test_what_is_staged_when_the_time_of_a_put_is_over_is_saved(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    client.store.faults.devices_are_late = True
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (0, 0, CHUNK_TOKENS))
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=CHUNK_TOKENS, late_tokens=CHUNK_TOKENS)


def test_a_refused_chunk_stops_its_sequence(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    client.store.faults.put_rejection = lambda number, index: (
        Reason.DRAM_FULL if number == 1 else None
    )
    saver.begin_request(0, make_tokens(80, 1), 0)
    for first, count in ((0, 8), (8, 11), (19, 8)):
        step(saver, (0, first, count))
        saver.finish()
    saver.begin_request(1, make_tokens(80, 2), 0)
    step(saver, (1, 0, 8))
    saver.end_request(0)
    saver.end_request(1)
    assert saver.finish() == SaveReport(saved_tokens=16, dropped_tokens=8 + 3 + 8)


def test_states_that_the_codec_cannot_bound_are_not_saved(
    client: MemoryClient, model: Model, make_tokens: MakeTokens
) -> None:
    states = StateFormat.of_model(model, "lossy", schedule=SCHEDULE, chunk_tokens=CHUNK_TOKENS)
    saver = StateSaver(client, states.encoded("int8"))
    saver.begin_request(0, make_tokens(80, 1), 0)
    saver.begin_request(1, make_tokens(80, 2), 0)
    step(saver, (0, 0, 8), (1, 0, 5))
    step(saver, (0, 8, 8), value=float("nan"))
    step(saver, (0, 16, 8), (1, 5, 3))
    saver.end_request(0)
    saver.end_request(1)
    assert saver.finish() == SaveReport(saved_tokens=16, dropped_tokens=16)
    saver.close()


def test_a_lost_session_loses_what_was_not_put(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (0, 0, 5))
    saver.finish()
    client.store.kill()
    step(saver, (0, 5, 3))
    assert saver.finish().dropped_tokens == 3
    client.store.start()
    saver.begin_request(1, make_tokens(80, 2), 0)
    saver.finish()
    step(saver, (1, 0, 8))
    saver.end_request(0)
    saver.end_request(1)
    assert saver.finish() == SaveReport(saved_tokens=8, dropped_tokens=3)


def test_a_new_session_has_a_new_region(
    client: MemoryClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    """What lies in the old one is lost, and the next chunk is put from the new one."""
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (0, 0, 8))
    saver.finish()
    assert isinstance(saver._queue, EncodingQueue)
    region = saver._queue._region
    assert region is not None
    client.store.restart()
    assert client.available()
    step(saver, (0, 8, 8))
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=16)
    assert saver._queue._region is not region


def test_an_arena_without_room_for_a_chunk_drops_it(
    client: MemoryClient, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    chunk_bytes = state_format.region_bytes(1)
    small = MemoryClient(client.store, room_bytes=chunk_bytes - 4096)
    saver = StateSaver(small, state_format)
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (0, 0, 8))
    saver.end_request(0)
    assert saver.finish() == SaveReport(dropped_tokens=8)
    saver.close()
    # The second chunk waits for the put of the first.
    snapshot = MemoryClient(client.store, room_bytes=2 * chunk_bytes)
    saver = StateSaver(snapshot, state_format)
    saver.begin_request(0, make_tokens(80, 1), 0)
    for first in (0, 8):
        step(saver, (0, first, 8))
        saver.finish()
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=16)
    saver.close()
    assert client.store.regions_in_use == 0


@pytest.mark.parametrize("place", ["settle", "encode", "put"])
def test_a_fault_of_the_queue_was_raised_for_ever(
    client: MemoryClient,
    saver: StateSaver,
    make_tokens: MakeTokens,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    place: str,
) -> None:
    """Bug: each later turn of any conversation failed, until the process ended.

    Every token is counted once, wherever the fault is; a later request is saved.
    """

    def fail(*arguments: object, **named: object) -> None:
        raise AssertionError("a bug")

    saver.begin_request(0, make_tokens(80, 1), 0)
    saver.begin_request(1, make_tokens(80, 2), 0)
    with monkeypatch.context() as patched:
        target, name = {
            "settle": (Snapshot, "settle"),
            "encode": (EncodingQueue, "_encode"),
            "put": (client, "put"),
        }[place]
        patched.setattr(target, name, fail)
        step(saver, (0, 0, 12), (1, 0, 3))
        saver.finish()
    # Of request 1 only a fault that comes before its turn takes anything along.
    step(saver, (1, 3, 5))
    saver.begin_request(2, make_tokens(80, 3), 0)
    saver.finish()
    step(saver, (2, 0, 8))
    for request_id in range(3):
        saver.end_request(request_id)
    report = saver.finish()
    lost_tokens = 12 if place == "put" else 12 + 8
    assert report == SaveReport(saved_tokens=12 + 8 + 8 - lost_tokens, dropped_tokens=lost_tokens)
    assert "could not be saved" in caplog.text
