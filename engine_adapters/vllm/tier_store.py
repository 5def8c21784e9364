"""Moves chunks between vLLM's host tier and the daemon, in threads."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

import torch
from torch import Tensor

from engine_adapters.breaker import Breaker
from engine_adapters.reading.byte_format import ByteFormat
from engine_adapters.reading.piece import pieces_of
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.read_policy import SPANS_IN_FLIGHT
from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import known
from engine_adapters.vllm.identity.tier_identity import tier_key
from engine_adapters.vllm.tier_follower import TierFollower
from kvstored_client import (
    Ack,
    Client,
    LayerState,
    NewChunk,
    Order,
    Placement,
    PutOutcome,
    Region,
    Rotary,
    SliceState,
    StateKind,
    StateLayout,
)
from kvstored_contract.limits import CHUNKS_PER_CALL_MAX, TOKEN_BYTES_MAX

SLICE_BYTES = 1024 * 1024
"""Of a slice of a chunk: a daemon reads slices of 2 MiB unless told otherwise."""

LOOKUP_LEASE_MS = 1000
"""As long as it takes to learn which chunks are stored."""

WAIT_S_MAX = 0.1
"""Longest wait for one chunk before it is looked whether the next span can be asked for."""


class TierStore:
    """Chunks of the host tier, ``rows`` [chunk_count, chunk_bytes] of uint8, in the daemon.

    vLLM's chunk holds all layers of all workers; it is stored in equal slices, whatever is in
    them. Every method waits for the daemon, so none belongs into the scheduler's thread.
    Thread-safe; a chunk of ``rows`` belongs to one call at a time.
    """

    def __init__(
        self,
        client: Client,
        rows: Tensor,
        *,
        fingerprint: str,
        chunk_tokens: int,
        span_bytes: int,
        timeout_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._rows = rows
        self._timeout_ms = timeout_ms
        # Requests wait for their look-ups, one after the other.
        self._breaker = Breaker(clock=clock)
        chunk_bytes = rows.shape[1]
        slice_count = -(-chunk_bytes // min(SLICE_BYTES, chunk_tokens * TOKEN_BYTES_MAX))
        token_bytes = -(-chunk_bytes // (slice_count * chunk_tokens))
        self._slice_bytes = token_bytes * chunk_tokens
        self.layout = StateLayout(
            model=fingerprint,
            # No other: under "bytes" slices of different chunks were mixed.
            dtype="uint8",
            layers=(LayerState(StateKind.KV, token_bytes),) * slice_count,
            chunk_tokens=chunk_tokens,
            rotary=Rotary.ROTATED,
        )
        span_chunks = span_bytes // (slice_count * self.layout.layer_stride)
        self._span_chunks = max(1, span_chunks)
        self.spans_in_flight = SPANS_IN_FLIGHT if span_chunks else 1
        """Spans that one load has in the arena at once: of chunks above ``span_bytes`` one."""
        self._options = ReadOptions(
            order=Order.HEAD_FIRST,
            span_chunks=self._span_chunks,
            spans_in_flight=self.spans_in_flight,
        )

    @property
    def region_bytes(self) -> int:
        """Most bytes of the arena that a span takes: its chunks are others of the host tier."""
        return Placement.contiguous_bytes(self.layout, min(self._span_chunks, self._rows.shape[0]))

    def known(self, offload_keys: Sequence[bytes]) -> list[bool]:
        """Which chunks are stored, each for itself.

        vLLM asks in an order of its own, and for groups of layers that need other chunks.
        """
        found: list[bool] = []
        for first in range(0, len(offload_keys), CHUNKS_PER_CALL_MAX):
            found += self._pinned(offload_keys[first : first + CHUNKS_PER_CALL_MAX])
        return found

    def _pinned(self, offload_keys: Sequence[bytes]) -> list[bool]:
        """Which of some chunks that fit a call are stored."""
        absent = [False] * len(offload_keys)
        if not self._breaker.admits():
            return absent
        with self._breaker.watch():
            keys = self._keys(offload_keys)
            lease = self._client.pin(self.layout, keys, lease_ms=LOOKUP_LEASE_MS) if keys else None
        if lease is None:
            return absent
        with lease:
            return list(lease.is_pinned)

    def store(self, offload_keys: Sequence[bytes], chunk_ids: Sequence[int]) -> bool:
        """Puts chunks of the host tier; whether all of them are in the store then."""
        keys = self._keys(offload_keys)
        return bool(keys) and all(
            self._put(keys[span], chunk_ids[span]) for span in self._spans(len(keys))
        )

    def load(self, offload_keys: Sequence[bytes], chunk_ids: Sequence[int]) -> int:
        """Fills chunks of the host tier; how many leading ones are filled."""
        pieces = pieces_of(self._keys(offload_keys), chunk_tokens=self.layout.chunk_tokens)
        reader = SpanReader(
            self._client,
            ByteFormat(self.layout),
            known(pieces),
            self._options,
            remaining_s=lambda: self._timeout_ms / 1000,
        )
        loaded = 0
        try:
            while (span := reader.first()) is not None:
                count = self._arrived(reader, span)
                self._fill(span, chunk_ids[loaded : loaded + count])
                loaded += count
                if count < span.chunk_count:
                    break
                reader.give_back(span)
        finally:
            reader.close()
        return loaded

    def follower(self) -> TierFollower:
        """What follows the chunks that were put here; not started."""
        return TierFollower(self._client, self._key)

    def close(self) -> None:
        """Ends the session; every later call is a miss."""
        self._client.close()

    def _keys(self, offload_keys: Sequence[bytes]) -> list[bytes]:
        """Empty while there is no daemon, which names the namespace."""
        if not self._client.available():
            return []
        return [self._key(key) for key in offload_keys]

    def _key(self, offload_key: bytes) -> bytes:
        return tier_key(self._client.namespace, self.layout.layout_id, bytes(offload_key))

    def _spans(self, count: int) -> Iterator[slice]:
        for first in range(0, count, self._span_chunks):
            yield slice(first, min(first + self._span_chunks, count))

    def _put(self, keys: Sequence[bytes], chunk_ids: Sequence[int]) -> bool:
        region = self._allocate(len(keys))
        if region is None:
            return False
        with region:
            for place, part in self._pairs(region, len(keys), chunk_ids):
                place.copy_(part)
            report = self._client.put(
                self.layout,
                [NewChunk(key=key, token_count=self.layout.chunk_tokens) for key in keys],
                Placement.contiguous(region, self.layout),
                ack=Ack.STAGED,
                timeout_ms=self._timeout_ms,
            )
        return all(result.outcome is not PutOutcome.REJECTED for result in report.results)

    def _arrived(self, reader: SpanReader, span: Span) -> int:
        """How many leading chunks of a span are there, once that is known.

        Each read ends by its deadline. The next span is asked for meanwhile.
        """
        chunks = range(span.chunk_count)
        for chunk in chunks:
            while span.state(chunk) is SliceState.PENDING:
                reader.advance()
                span.wait(chunk, timeout_s=WAIT_S_MAX)
        is_there = (span.state(chunk) is SliceState.RESIDENT for chunk in chunks)
        return sum(takewhile(bool, is_there))

    def _fill(self, span: Span, chunk_ids: Sequence[int]) -> None:
        """Copies leading chunks of a span into the host tier, a slice of all after the other."""
        for layer in span.layers:
            states = span.states(layer, len(chunk_ids))
            for state, chunk in zip(states, chunk_ids, strict=True):
                part = torch.split(self._rows[chunk], self._slice_bytes)[layer]
                part.copy_(state[: len(part)])

    def _allocate(self, chunk_count: int) -> Region | None:
        return self._client.allocate(Placement.contiguous_bytes(self.layout, chunk_count))

    def _pairs(
        self, region: Region, chunk_count: int, chunk_ids: Sequence[int]
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Each slice's place in the region with its part of the host tier."""
        layout = self.layout
        places = region.tensor(torch.uint8, (chunk_count, layout.layer_count, layout.layer_stride))
        for index, chunk in enumerate(chunk_ids):
            for number, part in enumerate(torch.split(self._rows[chunk], self._slice_bytes)):
                yield places[index, number, : len(part)], part
