"""The longest stored prefix of a prompt: what a new prompt begins with, and what it leaves."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from engine_adapters.breaker import Breaker
from engine_adapters.layout_check import LayoutCheck
from engine_adapters.transformers.chunk_states import ChunkStates
from kvstored_client import Ack, Client, NewChunk, Order, Placement, PutOutcome

LOGGER = logging.getLogger(__name__)

SPAN_BYTES = 64 * 1024 * 1024
"""Arena bytes that are read or put at once, unless one chunk is larger."""

PUT_TIMEOUT_MS = 5000

States = list[tuple[Tensor, Tensor]]

_BREAKERS: WeakKeyDictionary[Client, Breaker] = WeakKeyDictionary()
"""Caches come and go; how slow a daemon is stays known."""


def breaker_of(client: Client) -> Breaker:
    """The one of all caches of a client."""
    return _BREAKERS.setdefault(client, Breaker())


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPrefix:
    """Reads and stores chunks of one model. Thread-safe, as the client is."""

    client: Client
    format: ChunkStates

    def find(self, token_ids: Sequence[int]) -> list[bytes]:
        """Keys of the leading chunks that are stored; none at all while the daemon hangs."""
        breaker = breaker_of(self.client)
        if not breaker.admits():
            return []
        layout = self.format.layout
        with breaker.watch():
            if self.client.available():
                LayoutCheck(self.client, [layout], LOGGER).is_refused()
            keys = self.client.prefix_keys(layout, token_ids)
            return keys[: self.client.match(layout, keys).chunk_count] if keys else []

    def load(
        self, keys: Sequence[bytes], device: torch.device, *, until_s: float
    ) -> tuple[int, States]:
        """How many leading tokens were restored, and their states by layer.

        ``keys`` are of their chunks. What has not arrived by ``until_s``, on the monotonic clock,
        counts as missing.
        """
        if not keys:
            return 0, []
        chunk_tokens = self.format.layout.chunk_tokens
        states = self.format.empty(len(keys) * chunk_tokens, device)
        tokens = self._load_spans(keys, states, until_s=until_s) * chunk_tokens
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
        """Stores the chunks of ``token_ids`` from ``first_chunk`` on; how many are stored now.

        None while the daemon is known to hang.
        """
        if not breaker_of(self.client).is_closed:
            return 0
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
