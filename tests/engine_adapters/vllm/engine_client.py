"""A store in memory for an engine: none of its threads but those that read ever wait for it."""

import threading
from collections.abc import Sequence

from engine_adapters.reading.span_reader import THREAD_NAME as READER
from kvstored_client import Region, StateLayout
from kvstored_client.testing import Delivery, Faults, MemoryClient, MemoryStore, StoredChunk, Wait

ROOM_BYTES = 1 << 20


class EngineClient(MemoryClient):
    """A connected client of a store of its own, whose reads bring what a test delivers.

    A cancelled read is let go when the test finishes it; until then, only a reader's thread waits
    for it.
    """

    def __init__(self, *, room_bytes: int = ROOM_BYTES) -> None:
        faults = Faults(delivery=Delivery.HELD, keeps_cancelled=True, on_wait=_refuse)
        super().__init__(MemoryStore(faults=faults), room_bytes=room_bytes)
        assert self.available()

    @property
    def free_bytes(self) -> int:
        """Bytes that no region holds."""
        return self.region_bytes_max - self.store.region_bytes_in_use

    def allocate(self, byte_count: int, *, connects: bool = True) -> Region | None:
        """As of every client; the engine's threads never wait for a connection."""
        assert not connects, "the engine's threads never wait for a connection"
        return super().allocate(byte_count, connects=connects)

    def keep(self, layout: StateLayout, key: bytes, fills: Sequence[int]) -> None:
        """Has the store hold a chunk, each of its slices filled with a byte of its own."""
        slices = tuple(
            bytes([fill]) * layout.slice_bytes(layer) for layer, fill in enumerate(fills)
        )
        self.store.chunks[key] = StoredChunk(
            layout_id=layout.layout_id, slices=slices, token_count=layout.chunk_tokens
        )


def _refuse(wait: Wait) -> bool:
    name = threading.current_thread().name
    assert name == READER, f"the engine's threads wait for no read, and {name} for {wait}"
    return False
