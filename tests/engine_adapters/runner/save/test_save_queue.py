"""What both queues do when the daemon refuses the layout."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
import torch

from engine_adapters.layout_check import refusal_of
from engine_adapters.runner.save.save_queue import LOGGER, SaveReport
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Reason
from kvstored_client.testing import CallName, MemoryClient
from kvstored_contract import keys as contract_keys
from kvstored_contract.keys import Cut, history_keys
from kvstored_protos.v1.session_pb2 import RegisterLayoutRequest
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.memory import make_store
from tests.engine_adapters.runner.steps import segments_of
from tests.support.waiting import PATIENCE_S

LAYERS, KV_HEADS, HEAD_DIM, HIDDEN = 3, 2, 8, 32


@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_refused_layout_is_told_at_start_and_nothing_is_tried(
    codec: str,
    state_format: StateFormat,
    make_tokens: Callable[[int, int], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: each sequence was tried, and all that a user saw was that nothing was restored."""
    told: list[str] = []
    monkeypatch.setattr(LOGGER, "warning", lambda text, *values: told.append(text % values))
    client = MemoryClient(make_store())
    client.store.faults.refusals[CallName.REGISTER] = Reason.LAYOUT_INVALID
    states = state_format.encoded(codec)
    saver = StateSaver(client, states)
    saver.finish()
    assert told == [refusal_of(states.layout)]
    for request_id in range(2):
        saver.begin_request(request_id, make_tokens(2 * CHUNK_TOKENS, request_id), 0)
    segments, positions = segments_of(((0, 0, 2 * CHUNK_TOKENS), (1, 0, 2 * CHUNK_TOKENS)))
    saver.begin_step(segments)
    for layer in range(LAYERS):
        kv = torch.zeros(len(positions), KV_HEADS, HEAD_DIM)
        saver.take(layer, torch.zeros(len(positions), HIDDEN), kv, kv)
    saver.end_step()
    for request_id in range(2):
        saver.end_request(request_id)
    assert saver.finish() == SaveReport(dropped_tokens=4 * CHUNK_TOKENS)
    saver.close()
    assert len(told) == 1
    # A sequence, an append or a put would have announced the layout once more.
    assert len(client.store.asked(RegisterLayoutRequest)) == 1
    assert client.store.regions_in_use == 0


@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_keys_were_derived_from_token_0_for_each_new_chunk(
    codec: str,
    state_format: StateFormat,
    make_tokens: Callable[[int, int], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bug: a conversation of n chunks hashed n * (n + 1) / 2 of them while it decoded."""
    chunk_count = 12
    hashed: list[bytes] = []
    derive = contract_keys.chunk_key

    def count_and_derive(**fields: Any) -> bytes:
        hashed.append(derive(**fields))
        return hashed[-1]

    monkeypatch.setattr(contract_keys, "chunk_key", count_and_derive)
    client = MemoryClient(make_store())
    states = state_format.encoded(codec)
    saver = StateSaver(client, states)
    tokens: list[int] = []
    saver.begin_request(0, tokens, 0)
    for chunk in range(chunk_count):
        # The engine's list grows while it decodes.
        tokens += make_tokens(CHUNK_TOKENS, chunk)
        segments, positions = segments_of(((0, chunk * CHUNK_TOKENS, CHUNK_TOKENS),))
        saver.begin_step(segments)
        for layer in range(LAYERS):
            kv = torch.zeros(len(positions), KV_HEADS, HEAD_DIM)
            saver.take(layer, torch.zeros(len(positions), HIDDEN), kv, kv)
        saver.end_step()
        saver.finish()
    saver.end_request(0)
    saver.close()
    assert len(hashed) == chunk_count
    saved = list(hashed)
    assert saved == client.prefix_keys(states.layout, tokens)
    assert set(client.store.chunks) == set(saved)


def save_rows(saver: StateSaver, first_token: int, token_count: int, dropped_count: int) -> None:
    """One step of request 0: tokens from this number on, after a cut of so many."""
    (segment,), positions = segments_of(((0, first_token - dropped_count, token_count),))
    saver.begin_step([replace(segment, dropped_count=dropped_count)])
    for layer in range(LAYERS):
        kv = torch.zeros(len(positions), KV_HEADS, HEAD_DIM)
        saver.take(layer, torch.zeros(len(positions), HIDDEN), kv, kv)
    saver.end_step()


@pytest.mark.parametrize(
    "cut_token", [2 * CHUNK_TOKENS - 3, 2 * CHUNK_TOKENS, 2 * CHUNK_TOKENS + 2]
)
def test_the_tail_that_is_kept_has_the_key_of_its_cuts(
    state_format: StateFormat, make_tokens: Callable[[int, int], list[int]], cut_token: int
) -> None:
    """Fails when a tail, or the chunks before it, are named without the cuts, without the chunk
    before them, or as if they were the first ones of the history."""
    client = MemoryClient(make_store())
    layout, stops = state_format.layout, (2 * CHUNK_TOKENS + 5, 4 * CHUNK_TOKENS + 3)
    tokens = make_tokens(stops[-1], 1)
    cut = Cut(first_token=cut_token, dropped_count=4, kept=(range(1), range(5, cut_token)))
    first = 0
    for stop in stops:
        # The second turn goes on inside the chunk in which the first one has ended.
        said, cuts = tokens[:stop], [cut] if first else []
        saver = StateSaver(client, state_format)
        saver.begin_conversation(0, "a talk", said, cuts, first, is_tail_stored=True)
        if not first:
            save_rows(saver, 0, cut_token, 0)
            # The engine's own list: a cut is made while it computes.
            saver.finish()
            cuts.append(cut)
            first = cut_token
        save_rows(saver, first, stop - first, cut.dropped_count)
        saver.end_request(0)
        assert saver.finish().dropped_tokens == 0
        saver.close()
        info = client.sequences.get("a talk")
        assert info is not None
        assert [*info.keys, info.tail_key] == history_keys(
            namespace=client.namespace, layout=layout, token_ids=said, cuts=[cut]
        )
        first = stop


def test_a_sequence_that_keeps_its_tail_outlived_its_request(
    state_format: StateFormat, make_tokens: Callable[[int, int], list[int]]
) -> None:
    """Bug: it had a name in the store until somebody deleted it: after a kill nobody did."""
    client = MemoryClient(make_store())
    tokens = make_tokens(2 * CHUNK_TOKENS + 3, 1)
    saver = StateSaver(client, state_format)
    saver.begin_conversation(0, "an entry", tokens, (), 0, is_tail_stored=False, keeps_tail=True)
    save_rows(saver, 0, len(tokens), 0)
    saver.finish()
    assert [sequence.length_tokens for sequence in client.store.sequences.values()] == [len(tokens)]
    # Where the process ended here, it would end with its session.
    assert client.sequences.list() == []
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=len(tokens))
    assert not client.store.sequences
    keys = history_keys(namespace=client.namespace, layout=state_format.layout, token_ids=tokens)
    assert set(client.store.chunks) == set(keys)
    saver.close()


def test_a_sequence_that_keeps_its_tail_and_got_no_rows_ends_as_well(
    state_format: StateFormat, make_tokens: Callable[[int, int], list[int]]
) -> None:
    client = MemoryClient(make_store())
    saver = StateSaver(client, state_format)
    saver.begin_conversation(
        0, "an entry", make_tokens(3, 1), (), 0, is_tail_stored=False, keeps_tail=True
    )
    saver.end_request(0)
    saver.finish()
    assert not client.store.sequences
    saver.close()


@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_a_sequence_that_keeps_its_tail_lost_it_after_a_jump(
    codec: str, state_format: StateFormat, make_tokens: Callable[[int, int], list[int]]
) -> None:
    """Bug: what a restorer has jumped over was taken for a gap, and nothing more was saved."""
    client = MemoryClient(make_store())
    states = state_format.encoded(codec)
    tokens = make_tokens(5 * CHUNK_TOKENS + 3, 1)
    saver = StateSaver(client, states)
    keys = history_keys(namespace=client.namespace, layout=states.layout, token_ids=tokens)
    saver.begin_conversation(0, "an entry", tokens, (), 0, is_tail_stored=False, keeps_tail=True)
    save_rows(saver, 0, CHUNK_TOKENS, 0)
    save_rows(saver, 5 * CHUNK_TOKENS, 3, 0)
    saver.end_request(0)
    report = saver.finish()
    saver.close()
    assert (report.saved_tokens, report.dropped_tokens) == (CHUNK_TOKENS + 3, 0)
    assert set(client.store.chunks) == {keys[0], keys[-1]}
    assert not client.store.sequences


def test_a_late_tail_took_complete_chunks_along(
    state_format: StateFormat, make_tokens: Callable[[int, int], list[int]]
) -> None:
    """Bug: chunks of a conversation that are on their way when its turn ends were dropped ones."""
    client = MemoryClient(make_store())
    client.store.faults.devices_are_late = True
    saver = StateSaver(client, state_format)
    said = make_tokens(2 * CHUNK_TOKENS + 3, 1)
    saver.begin_conversation(0, "a talk", said, (), 0, is_tail_stored=False)
    save_rows(saver, 0, len(said), 0)
    saver.end_request(0)
    assert saver.finish() == SaveReport(
        saved_tokens=2 * CHUNK_TOKENS, late_tokens=2 * CHUNK_TOKENS, dropped_tokens=3
    )
    saver.close()


def test_tokens_were_dropped_less_than_none(
    state_format: StateFormat, make_tokens: Callable[[int, int], list[int]]
) -> None:
    """Bug: a conversation whose tail was evicted is shorter than its turn began, and that was
    counted."""
    store = make_store()
    said = make_tokens(2 * CHUNK_TOKENS + 5, 1)
    first, dropped = CHUNK_TOKENS + 3, CHUNK_TOKENS + 2
    for start, stop in ((0, first), (first, len(said))):
        with MemoryClient(store) as client:
            saver = StateSaver(client, state_format)
            saver.begin_conversation(0, "a talk", said[:stop], (), start, is_tail_stored=start > 0)
            if start:
                saver.finish()
                store.chunks.clear()
            save_rows(saver, start, stop - start, 0)
            saver.end_request(0)
            report = saver.finish()
            saver.close()
    assert report == SaveReport(dropped_tokens=dropped)


@pytest.mark.parametrize("codec", ["raw", "zstd"])
def test_rows_that_come_before_the_store_has_made_the_sequence_are_saved(
    codec: str, state_format: StateFormat, make_tokens: Callable[[int, int], list[int]]
) -> None:
    """Fails where a sequence counts as stopped until it is open."""
    client = MemoryClient(make_store())
    saver = StateSaver(client, state_format.encoded(codec))
    saver.finish()
    is_stepped = threading.Event()
    with patch.object(saver._queue, "_open", before(saver._queue._open, is_stepped.wait)):
        saver.begin_request(0, make_tokens(2 * CHUNK_TOKENS, 1), 0)
        save_rows(saver, 0, CHUNK_TOKENS + 3, 0)
        is_stepped.set()
        saver.finish()
    save_rows(saver, CHUNK_TOKENS + 3, CHUNK_TOKENS - 3, 0)
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=2 * CHUNK_TOKENS)
    saver.close()


def before(call: Callable[..., Any], wait: Callable[[float], bool]) -> Callable[..., Any]:
    """The call, once something has happened."""

    def late(*arguments: Any) -> Any:
        assert wait(PATIENCE_S)
        return call(*arguments)

    return late


def test_rows_inside_a_chunk_were_encoded_as_a_whole_one(
    state_format: StateFormat, make_tokens: Callable[[int, int], list[int]]
) -> None:
    """Fails where a stretch that begins inside a chunk is not stopped: its key has more tokens."""
    client = MemoryClient(make_store())
    saver = StateSaver(client, state_format.encoded("zstd"))
    tokens = make_tokens(2 * CHUNK_TOKENS + 3, 1)
    saver.begin_conversation(0, "an entry", tokens, (), 0, is_tail_stored=False, keeps_tail=True)
    save_rows(saver, 0, CHUNK_TOKENS, 0)
    save_rows(saver, 2 * CHUNK_TOKENS + 1, 2, 0)
    saver.end_request(0)
    assert saver.finish() == SaveReport(saved_tokens=CHUNK_TOKENS, dropped_tokens=2)
    assert len(client.store.chunks) == 1
    saver.close()
