"""Steps of a saver whose states tell their layer and position, and a look at the chunks."""

import torch

from engine_adapters.runner.save.saver import StateSaver
from kvstored_client.testing import MemoryClient
from tests.engine_adapters.runner.conftest import CHUNK_TOKENS
from tests.engine_adapters.runner.steps import segments_of

LAYERS, KV_HEADS, HEAD_DIM = 3, 2, 8


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


def check_chunk(client: MemoryClient, key: bytes, first_position: int) -> None:
    for layer, stored in enumerate(client.store.chunks[key].slices):
        states = torch.frombuffer(bytearray(stored), dtype=torch.float32)
        states = states.view(2, CHUNK_TOKENS, KV_HEADS, HEAD_DIM)
        for half in (0, 1):
            for token in range(CHUNK_TOKENS):
                wanted = states_of(layer, first_position + token, half)
                assert (states[half, token] == wanted).all()
