from collections.abc import Callable, Iterator

import pytest
import torch

from engine_adapters.runner.chunk_writer import CHUNKS_PER_PUT_MAX, SaveReport
from engine_adapters.runner.saver import StateSaver
from engine_adapters.runner.state_format import StateFormat
from engine_adapters.runner.step import Segment
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.fake_client import FakeClient, FakeStore

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
    segments, positions = [], []
    for request_id, first_position, token_count in parts:
        segments.append(
            Segment(
                request_id=request_id,
                first_row=len(positions),
                token_count=token_count,
                first_position=first_position,
                first_slot=0,
            )
        )
        positions += [
            position + 1000 * request_id
            for position in range(first_position, first_position + token_count)
        ]
    saver.begin_step(segments)
    for layer in range(LAYERS):
        keys, values = (
            torch.tensor([states_of(layer, position, half) for position in positions])
            .view(-1, 1, 1)
            .expand(-1, KV_HEADS, HEAD_DIM)
            for half in (0, 1)
        )
        saver.take(layer, keys, values)
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
    assert saver.finish() == SaveReport(stored_chunks=8)
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
    step(saver, (0, 0, CHUNK_TOKENS - 1))
    assert client.regions_in_use == 1
    saver.end_request(0)
    assert client.regions_in_use == 0
    assert saver.finish() == SaveReport()


def test_generated_tokens_get_their_keys_when_they_are_known(
    client: FakeClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    tokens = make_tokens(CHUNK_TOKENS + 3, 1)
    saver.begin_request(0, tokens, 0)
    step(saver, (0, 0, len(tokens)))
    for position in range(len(tokens), 2 * CHUNK_TOKENS):
        tokens.append(position)
        step(saver, (0, position, 1))
    assert saver.finish().stored_chunks == 2
    keys = client.prefix_keys(state_format.layout, tokens)
    assert list(client.store.chunks) == keys


def test_full_arena_ends_the_chain(
    client: FakeClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    small = FakeClient(client.store, arena_bytes=state_format.region_bytes(3))
    saver = StateSaver(small, state_format)
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (0, 0, 50))
    assert saver.finish() == SaveReport(stored_chunks=3, dropped_chunks=1)
    step(saver, (0, 50, 30))
    assert saver.finish() == SaveReport(stored_chunks=3, dropped_chunks=1)
    saver.close()
    assert small.regions_in_use == 0


def test_rejected_put_ends_only_its_own_chain(
    client: FakeClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    saver.begin_request(0, make_tokens(80, 1), 0)
    saver.begin_request(1, make_tokens(80, 2), 0)
    client.rejects = lambda put_index: put_index == 0
    step(saver, (0, 0, 16))
    assert saver.finish() == SaveReport(dropped_chunks=2)
    step(saver, (0, 16, 17), (1, 0, 16))
    assert saver.finish() == SaveReport(stored_chunks=2, dropped_chunks=2)


def test_partly_filled_chunk_of_a_broken_chain_is_released(
    client: FakeClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    saver.begin_request(0, make_tokens(80, 1), 0)
    client.rejects = lambda put_index: True
    step(saver, (0, 0, 12))
    saver.finish()
    assert client.regions_in_use == 1
    step(saver, (0, 12, 1))
    assert client.regions_in_use == 0


def test_nothing_of_a_lost_session_is_put(
    client: FakeClient, saver: StateSaver, make_tokens: MakeTokens
) -> None:
    saver.begin_request(0, make_tokens(80, 1), 0)
    client.alive = False
    step(saver, (0, 0, 16))
    assert saver.finish() == SaveReport(dropped_chunks=2)
    assert client.put_count == 0


def test_no_key_no_chunk(client: FakeClient, saver: StateSaver, make_tokens: MakeTokens) -> None:
    saver.begin_request(0, make_tokens(80, 1), 0)
    step(saver, (0, 0, 1))
    client.present = False
    step(saver, (0, 1, 15))
    assert saver.finish().stored_chunks == 0
    assert saver.finish().dropped_chunks > 0


def test_one_put_is_bounded(client: FakeClient, saver: StateSaver, make_tokens: MakeTokens) -> None:
    chunk_count = CHUNKS_PER_PUT_MAX + 1
    saver.begin_request(0, make_tokens(chunk_count * CHUNK_TOKENS, 1), 0)
    step(saver, (0, 0, chunk_count * CHUNK_TOKENS))
    assert saver.finish() == SaveReport(stored_chunks=chunk_count)
    assert client.put_count == 2


def test_a_fault_of_the_writer_is_not_hidden(
    client: FakeClient, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    saver = StateSaver(client, state_format)
    saver.begin_request(0, make_tokens(80, 1), 0)

    def fail(put_index: int) -> bool:
        raise AssertionError("a bug")

    client.rejects = fail
    step(saver, (0, 0, 12))
    with pytest.raises(AssertionError, match="a bug"):
        saver.finish()
    with pytest.raises(AssertionError, match="a bug"):
        saver.close()
    assert client.regions_in_use == 0


def test_stored_tokens_end_on_a_chunk_boundary(saver: StateSaver) -> None:
    with pytest.raises(ValueError, match="do not end on a chunk boundary"):
        saver.begin_request(0, [1, 2, 3], 3)


def test_chunks_before_a_lost_one_are_put(
    client: FakeClient, saver: StateSaver, state_format: StateFormat, make_tokens: MakeTokens
) -> None:
    tokens = make_tokens(80, 1)
    saver.begin_request(0, tokens, 0)
    step(saver, (0, 0, 16))
    saver.finish()
    client.rejects = lambda put_index: put_index == 1
    step(saver, (0, 16, 16))
    assert saver.finish() == SaveReport(stored_chunks=2, dropped_chunks=2)
    assert list(client.store.chunks) == client.prefix_keys(state_format.layout, tokens)[:2]
