"""A store in memory, a client of it, and one chunk in its arena."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from kvstored_client import Client, NewChunk, Placement, Read, Region, StateLayout
from kvstored_client.testing import MemoryClient, MemoryStore

ARENA_BYTES = 1 << 20
KEYS = [bytes([number]) * 32 for number in range(3)]


@dataclass
class Bench:
    """Three chunks of three layers, put or not, and a region that they are read into."""

    store: MemoryStore
    client: Client
    layout: StateLayout

    def __post_init__(self) -> None:
        self.source = self.region(0)
        self.target = self.region(1)

    def region(self, seed: int) -> Region:
        region = self.client.allocate(Placement.contiguous_bytes(self.layout, len(KEYS)))
        assert region is not None
        region.view[:] = np.random.default_rng(seed).bytes(region.byte_count)
        return region

    def put(self) -> list[object]:
        chunks = [NewChunk(key=key, token_count=16) for key in KEYS]
        placement = Placement.contiguous(self.source, self.layout)
        report = self.client.put(self.layout, chunks, placement, timeout_ms=100)
        return [result.reason or result.outcome for result in report.results]

    def read(self, timeout_ms: int = 30_000, **options: object) -> Read:
        placement = Placement.contiguous(self.target, self.layout)
        return self.client.read(
            self.layout,
            KEYS,
            placement,
            timeout_ms=timeout_ms,
            **options,  # type: ignore[arg-type]
        )

    def is_right(self, chunk: int, layer: int) -> bool:
        """Whether the target holds the slice as it was put."""
        start = (chunk * self.layout.layer_count + layer) * self.layout.layer_stride
        end = start + self.layout.slice_bytes(layer)
        return bool(self.target.view[start:end] == self.source.view[start:end])


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def bench(store: MemoryStore, layout: StateLayout) -> Iterator[Bench]:
    with MemoryClient(store, arena_bytes=ARENA_BYTES) as client:
        yield Bench(store, client, layout)
