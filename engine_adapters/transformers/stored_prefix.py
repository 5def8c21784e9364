"""The longest stored prefix of a prompt: what a new prompt begins with, and what it leaves."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine_adapters.transformers.chunk_states import ChunkStates
from kvstored_client import Ack, Client, NewChunk, Order, Placement, PutOutcome

SPAN_BYTES = 64 * 1024 * 1024
"""Arena bytes that are read or put at once, unless one chunk is larger."""

PUT_TIMEOUT_MS = 5000

States = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPrefix:
    """Reads and stores chunks of one model. Thread-safe, as the client is."""

    client: Client
    format: ChunkStates

    def load(
        self, token_ids: Sequence[int], device: torch.device, *, timeout_s: float
    ) -> tuple[int, States]:
        """How many leading tokens were restored, and their states by layer.

        Whole chunks only. What has not arrived after ``timeout_s`` counts as missing.
        """
        layout = self.format.layout
        keys = self.client.prefix_keys(layout, token_ids)
        found = self.client.match(layout, keys).chunk_count if keys else 0
        if found == 0:
            return 0, []
        states = self.format.empty(found * layout.chunk_tokens, device)
        loaded = self._load_spans(keys[:found], states, until_s=time.monotonic() + timeout_s)
        tokens = loaded * layout.chunk_tokens
        return tokens, [(key[:, :, :tokens], value[:, :, :tokens]) for key, value in states]

    def _load_spans(self, keys: Sequence[bytes], states: States, *, until_s: float) -> int:
        """Chunks that arrived before the first one that did not."""
        loaded, step = 0, self._span_chunks()
        while loaded < len(keys):
            part = keys[loaded : loaded + step]
            left_ms = int((until_s - time.monotonic()) * 1000)
            arrived = self._load_span(part, states, loaded, left_ms) if left_ms > 0 else 0
            loaded += arrived
            if arrived < len(part):
                break
        return loaded

    def _load_span(
        self, keys: Sequence[bytes], states: States, first_chunk: int, timeout_ms: int
    ) -> int:
        layout = self.format.layout
        region = self.client.allocate(len(keys) * self.format.chunk_stride)
        if region is None:
            return 0
        with region:
            place = Placement.contiguous(region, layout)
            with self.client.read(
                layout, keys, place, order=Order.HEAD_FIRST, timeout_ms=timeout_ms
            ) as read:
                arrived = read.wait().resident_prefix
            if arrived:
                self.format.load(region, states, first_chunk=first_chunk, chunk_count=arrived)
            return arrived

    def save(
        self, states: States, token_ids: Sequence[int], *, first_chunk: int, is_durable: bool
    ) -> int:
        """Stores the chunks of ``token_ids`` from ``first_chunk`` on; how many are stored now."""
        layout = self.format.layout
        keys = self.client.prefix_keys(layout, token_ids)
        stored, step = 0, self._span_chunks()
        for first in range(first_chunk, len(keys), step):
            count = min(step, len(keys) - first)
            now = self._save_span(states, keys, range(first, first + count), is_durable=is_durable)
            stored += now
            if now < count:
                break
        return stored

    def _save_span(
        self, states: States, keys: Sequence[bytes], places: range, *, is_durable: bool
    ) -> int:
        layout = self.format.layout
        region = self.client.allocate(len(places) * self.format.chunk_stride)
        if region is None:
            return 0
        with region:
            self.format.save(region, states, first_chunk=places.start, chunk_count=len(places))
            chunks = [
                NewChunk(
                    key=keys[place],
                    parent_key=keys[place - 1] if place else b"",
                    token_count=layout.chunk_tokens,
                    stripe=place,
                )
                for place in places
            ]
            report = self.client.put(
                layout,
                chunks,
                Placement.contiguous(region, layout),
                ack=Ack.DURABLE if is_durable else Ack.STAGED,
                timeout_ms=PUT_TIMEOUT_MS,
            )
        wanted = {PutOutcome.STORED, PutOutcome.EXISTED}
        return sum(result.outcome in wanted for result in report.results)

    def _span_chunks(self) -> int:
        """Chunks that a quarter of the arena has room for, and a span."""
        room = min(SPAN_BYTES, self.client.region_bytes_max // 4)
        return max(1, room // self.format.chunk_stride)
