"""What both queues do when the daemon refuses the layout."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine_adapters.layout_check import refusal_of
from engine_adapters.runner.save.save_queue import LOGGER, SaveReport
from engine_adapters.runner.save.saver import StateSaver
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Reason
from kvstored_client.testing import CallName, MemoryClient
from kvstored_contract import keys as contract_keys
from kvstored_protos.v1.session_pb2 import RegisterLayoutRequest
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.memory import make_store
from tests.engine_adapters.runner.steps import segments_of

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
