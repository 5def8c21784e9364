import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from engine_adapters.runner.save_queue import SaveReport
from engine_adapters.runner.saver import StateSaver
from engine_adapters.runner.state_format import StateFormat
from engine_adapters.runner.step import Segment
from kvstored_client import SnapshotGeometry
from kvstored_contract.layout import align_up
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.fake_client import FakeClient, FakeStore
from tests.engine_adapters.runner.steps import segments_of

MakeTokens = Callable[[int, int], list[int]]
LAYERS, KV_HEADS, HEAD_DIM = 3, 2, 8


@pytest.fixture
def client() -> FakeClient:
    return FakeClient(FakeStore())


@pytest.fixture
def saver(client: FakeClient, state_format: StateFormat) -> Iterator[StateSaver]:
    saver = StateSaver(client, state_format)
    yield saver
    saver.close()
    assert client.regions_in_use == 0


def states_of(layer: int, position: int, half: int) -> float:
    """A number that tells layer, position and half apart."""
    return layer * 10_000 + position * 10 + half


def step(saver: StateSaver, *parts: tuple[int, int, int]) -> None:
    """One step of (request_id, first position, token count) with recognisable states."""
    segments, positions = segments_of(parts)
    saver.begin_step(segments)
    for layer in range(LAYERS):
        keys, values = (
            torch.tensor([states_of(layer, position, half) for position in positions])
            .view(-1, 1, 1)
            .expand(-1, KV_HEADS, HEAD_DIM)
            for half in (0, 1)
        )
        saver.take(layer, torch.empty(len(keys), 0), keys, values)
    saver.end_step()


def check_chunk(client: FakeClient, key: bytes, first_position: int) -> None:
    for layer, stored in enumerate(client.store.chunks[key]):
        states = torch.frombuffer(bytearray(stored), dtype=torch.float32)
        states = states.view(2, CHUNK_TOKENS, KV_HEADS, HEAD_DIM)
        for half in (0, 1):
            for token in range(CHUNK_TOKENS):
                wanted = states_of(layer, first_position + token, half)
                assert (states[half, token] == wanted).all()


def test_rows_of_interleaved_sequences_reach_their_chunks(
    client: FakeClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
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
    assert client.append_count == 3
    keys = [client.prefix_keys(state_format.layout, each) for each in tokens]
    assert set(client.store.chunks) == {*keys[0], *keys[1][2:]}
    for request_id, first_chunk in ((0, 0), (1, 2)):
        for index in range(first_chunk, 5):
            position = index * CHUNK_TOKENS + 1000 * request_id
            check_chunk(client, keys[request_id][index], position)


def test_incomplete_chunks_are_not_saved(
    client: FakeClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    saver.begin_request(0, make_tokens(40, 1), 0)
    step(saver, (0, 0, 2 * CHUNK_TOKENS - 1))
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=CHUNK_TOKENS)
    assert client.sequences.open == {}


def test_generated_tokens_get_their_keys_when_they_are_known(
    client: FakeClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    tokens = make_tokens(CHUNK_TOKENS + 3, 1)
    saver.begin_request(0, tokens, 0)
    step(saver, (0, 0, len(tokens)))
    for position in range(len(tokens), 2 * CHUNK_TOKENS):
        tokens.append(position)
        step(saver, (0, position, 1))
    saver.finish()
    keys = client.prefix_keys(state_format.layout, tokens)
    assert list(client.store.chunks) == keys


def test_a_full_arena_drops_the_step_as_a_whole(
    client: FakeClient, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    rows = SnapshotGeometry(state_format.layout, 20).byte_count
    small = FakeClient(client.store, arena_bytes=align_up(rows))
    saver = StateSaver(small, state_format)
    tokens = [make_tokens(80, seed) for seed in range(3)]
    for request_id in range(3):
        saver.begin_request(request_id, tokens[request_id], 0)
    step(saver, (0, 0, 10), (1, 0, 10))
    saver.finish()
    step(saver, (0, 10, 20), (1, 10, 20))
    assert saver.finish().dropped_tokens == 40
    # What they have is kept at once, and their open chunks take no room any more.
    assert small.sequences.open.keys() == {f"{saver._prefix}-0-2"}
    # Nothing behind the gap is saved, and the others go on.
    step(saver, (0, 30, 1), (2, 0, 16))
    for request_id in range(3):
        saver.end_request(request_id)
    assert saver.finish() == SaveReport(saved_tokens=2 * 8 + 16, dropped_tokens=41)
    saver.close()
    assert set(small.store.chunks) == {
        small.prefix_keys(state_format.layout, tokens[0])[0],
        small.prefix_keys(state_format.layout, tokens[1])[0],
        *small.prefix_keys(state_format.layout, tokens[2])[:2],
    }
    assert small.regions_in_use == 0


def test_steps_before_a_full_arena_are_saved(
    client: FakeClient, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    """The daemon is behind: they are still waiting for it when there is no room for the next."""
    rows = SnapshotGeometry(state_format.layout, 16).byte_count
    small = FakeClient(client.store, arena_bytes=3 * align_up(rows))
    saver = StateSaver(small, state_format)
    goes_on = threading.Event()
    small.rejected_appends = lambda index, name: not goes_on.wait(60)
    saver.begin_request(0, make_tokens(80, 1), 0)
    for first in range(0, 64, 16):
        step(saver, (0, first, 16))
    goes_on.set()
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=48, dropped_tokens=16)
    saver.close()


def test_a_chunk_that_could_not_be_stored_takes_back_what_was_staged(
    client: FakeClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (0, 0, 12))
    saver.finish()
    client.loses_tail = True
    step(saver, (0, 12, 8))
    saver.finish()
    client.loses_tail = False
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=8, dropped_tokens=8)


def test_a_step_that_never_ended_is_forgotten(
    client: FakeClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    tokens = make_tokens(80, 1)
    saver.begin_request(0, tokens, 0)
    saver.begin_step(
        [Segment(request_id=0, first_row=0, token_count=5, first_position=0, first_slot=0)]
    )
    step(saver, (0, 0, 16))
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=16)
    assert set(client.store.chunks) == set(client.prefix_keys(state_format.layout, tokens)[:2])


def test_a_refused_append_stops_only_its_own_sequence(
    client: FakeClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    tokens = [make_tokens(80, seed) for seed in range(2)]
    for request_id in range(2):
        saver.begin_request(request_id, tokens[request_id], 0)
    client.rejected_appends = lambda index, name: index == 1 and name.endswith("-0")
    for first in (0, 16, 32):
        step(saver, (0, first, 16), (1, first, 16))
        saver.finish()
    saver.end_request(0)
    saver.end_request(1)
    assert saver.finish() == SaveReport(saved_tokens=16 + 48, dropped_tokens=32)
    assert set(client.store.chunks) == {
        *client.prefix_keys(state_format.layout, tokens[0])[:2],
        *client.prefix_keys(state_format.layout, tokens[1])[:6],
    }


def test_nothing_of_a_lost_session_is_appended(
    client: FakeClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    saver.begin_request(0, make_tokens(80, 1), 0)
    saver.finish()
    client.alive = False
    step(saver, (0, 0, 16))
    assert saver.finish() == SaveReport(dropped_tokens=16)
    assert client.append_count == 0


def test_no_key_no_append(client: FakeClient, saver: StateSaver, make_tokens: MakeTokens) -> None:
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (0, 0, 1))
    saver.finish()
    client.present = False
    step(saver, (0, 1, 15))
    assert saver.finish() == SaveReport(dropped_tokens=15)


def test_a_sequence_that_the_daemon_refuses_is_not_saved(
    client: FakeClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    client.sequences.refuses = True
    saver.begin_request(0, make_tokens(80, 1), 0)
    saver.finish()
    step(saver, (0, 0, 16))
    assert saver.finish() == SaveReport(dropped_tokens=16)
    assert client.append_count == 0


def test_a_fault_of_the_queue_is_not_hidden(
    client: FakeClient, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    saver = StateSaver(client, state_format)
    saver.begin_request(0, make_tokens(80, 1), 0)

    def fail(append_index: int, sequence: str) -> bool:
        raise AssertionError("a bug")

    client.rejected_appends = fail
    step(saver, (0, 0, 12))
    with pytest.raises(AssertionError, match="a bug"):
        saver.finish()
    with pytest.raises(AssertionError, match="a bug"):
        saver.close()
    assert client.regions_in_use == 0


def test_requests_that_were_not_announced_are_ignored(
    client: FakeClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    """As while they are being restored: what is computed then is stored."""
    step(saver, (7, 0, 16))
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (7, 16, 3), (0, 0, 16))
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=16)


def test_tokens_before_the_stored_ones_are_not_saved_again(
    client: FakeClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    tokens = make_tokens(80, 1)
    saver.begin_request(0, tokens, 2 * CHUNK_TOKENS)
    step(saver, (0, 4, 3))
    step(saver, (0, 7, 25))
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=2 * CHUNK_TOKENS)
    keys = client.prefix_keys(state_format.layout, tokens)
    assert list(client.store.chunks) == keys[2:4]
    check_chunk(client, keys[2], 2 * CHUNK_TOKENS)


def test_saving_goes_on_where_a_jump_ends(
    client: FakeClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    """The tokens between were loaded, so they are stored already."""
    tokens = make_tokens(80, 1)
    saver.begin_request(0, tokens, CHUNK_TOKENS)
    step(saver, (0, 0, 20))
    step(saver, (0, 20, 4))
    step(saver, (0, 5 * CHUNK_TOKENS, 9))
    step(saver, (0, 5 * CHUNK_TOKENS + 9, 7))
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=4 * CHUNK_TOKENS)
    keys = client.prefix_keys(state_format.layout, tokens)
    assert list(client.store.chunks) == [keys[1], keys[2], keys[5], keys[6]]
    for chunk in (1, 2, 5, 6):
        check_chunk(client, keys[chunk], chunk * CHUNK_TOKENS)
    assert client.sequences.open == {}


def test_a_lost_session_is_connected_again_behind_the_engines_back(
    client: FakeClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    """Regression: ``allocate`` connected on the engine's thread, within the client's time limit."""
    client.connect_threads.clear()
    saver.begin_request(0, make_tokens(80, 1), 0)
    saver.finish()
    client.present = False
    for first in (0, 16, 32):
        step(saver, (0, first, 16))
    assert saver.finish() == SaveReport(dropped_tokens=48)
    assert client.connecting_allocations == 0
    assert client.connect_threads
    assert all(name.startswith("save-queue") for name in client.connect_threads)
    client.present = True
    saver.begin_request(1, make_tokens(80, 2), 0)
    step(saver, (1, 0, 16))
    saver.end_request(0)
    saver.end_request(1)
    assert saver.finish() == SaveReport(saved_tokens=16, dropped_tokens=48)


def test_stored_tokens_end_on_a_chunk_boundary(saver: StateSaver) -> None:
    with pytest.raises(ValueError, match="do not end on a chunk boundary"):
        saver.begin_request(0, [1, 2, 3], 3)
