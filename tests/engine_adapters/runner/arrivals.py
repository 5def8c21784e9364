"""Reads that bring chunks, or layers, only when the test says so."""

import threading

from engine_adapters.reading.decoded_slices import THREAD_NAME as DECODER
from engine_adapters.reading.span_reader import THREAD_NAME as READER
from kvstored_client.session.arena import BOARDS_BYTES_MAX
from kvstored_client.testing import Delivery, MemoryStore, StoredChunk, Wait

RUBBISH = 0x7F


class Arrivals:
    """``deliver`` brings so many chunks, or layers of LAYER_FIRST reads, one read after another.

    A wait on the engine's thread lets one arrive, so that waiting always ends;
    ``waits`` counts that. After ``dies_after`` arrivals the store is killed.
    """

    def __init__(self, store: MemoryStore) -> None:
        self.waits = 0
        self.dies_after: int | None = None
        self._store = store
        self._count = 0
        store.faults.delivery = Delivery.HELD
        store.faults.on_wait = self._let_one_arrive

    def deliver(self, count: int) -> None:
        for _ in range(count):
            if self._count == self.dies_after and self._store.is_running:
                self._die()
            self._count += self._store.deliver()

    def _let_one_arrive(self, wait: Wait) -> bool:
        if threading.current_thread().name in (READER, DECODER):
            return False
        if wait.timeout_s is None or wait.timeout_s > 0:
            self.waits += 1
            self.deliver(1)
        return True

    def _die(self) -> None:
        sessions = list(self._store.sessions.values())
        self._store.kill()
        for session in sessions:
            # Nobody may use what lies there; boards, at the end, are as the store left them.
            payload_bytes = len(session.arena) - BOARDS_BYTES_MAX
            session.arena[:payload_bytes] = bytes([RUBBISH]) * payload_bytes


def garbled(chunk: StoredChunk) -> StoredChunk:
    """A chunk whose slices are no payloads of any codec."""
    slices = (bytes([part[0] ^ 0xFF]) + part[1:] if part else part for part in chunk.slices)
    return StoredChunk(
        layout_id=chunk.layout_id,
        slices=tuple(slices),
        token_count=chunk.token_count,
        parent_key=chunk.parent_key,
    )
