"""What both queues do when the daemon refuses the layout."""

from collections.abc import Callable, Sequence

import pytest
import torch

from engine_adapters.layout_check import refusal_of
from engine_adapters.runner.save_queue import LOGGER, SaveReport
from engine_adapters.runner.saver import StateSaver
from engine_adapters.runner.state_format import StateFormat
from kvstored_client import SequenceInfo, StateLayout
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.fake_client import FakeClient, FakeStore
from tests.engine_adapters.runner.steps import segments_of

LAYERS, KV_HEADS, HEAD_DIM, HIDDEN = 3, 2, 8, 32


class RefusingClient(FakeClient):
    """Its daemon takes no layout."""

    def __init__(self) -> None:
        super().__init__(FakeStore())
        self.sequences.refuses = True
        self.rejects = lambda put_index: True

    def register(self, layout: StateLayout) -> bool | None:
        return False


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
    client = RefusingClient()
    tried: list[str] = []

    def create(
        name: str, layout: StateLayout, *, keys: Sequence[bytes], ephemeral: bool
    ) -> SequenceInfo | None:
        tried.append(name)
        return None

    monkeypatch.setattr(client.sequences, "create", create)
    states = state_format.encoded(codec)
    saver = StateSaver(client, states)
    saver.finish()
    assert told == [refusal_of(states.layout)]
    for request_id in range(2):
        saver.begin_request(request_id, make_tokens(2 * CHUNK_TOKENS, request_id), 0)
    segments, positions = segments_of([(0, 0, 2 * CHUNK_TOKENS), (1, 0, 2 * CHUNK_TOKENS)])
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
    assert (tried, client.append_count, client.put_count) == ([], 0, 0)
    assert client.regions_in_use == 0
