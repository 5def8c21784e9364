"""Moves chunks between vLLM's host tier and the daemon, in threads."""

import time
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from engine_adapters.vllm.identity.tier_identity import tier_key
from engine_adapters.vllm.scheduler_side.breaker import Breaker
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
    StateKind,
    StateLayout,
)
from kvstored_contract.limits import TOKEN_BYTES_MAX

SLICE_BYTES = 1024 * 1024
"""Of a slice of a chunk: a daemon reads slices of 2 MiB unless told otherwise."""

LOOKUP_LEASE_MS = 1000
"""For as long as it takes to be told which chunks are stored."""


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
        self._span_chunks = max(1, span_bytes // (slice_count * self.layout.layer_stride))

    @property
    def region_bytes(self) -> int:
        """Most bytes of the arena that one call takes: its chunks are others of the host tier."""
        return Placement.contiguous_bytes(self.layout, min(self._span_chunks, self._rows.shape[0]))

    def known(self, offload_keys: Sequence[bytes]) -> list[bool]:
        """Which chunks are stored, each for itself.

        vLLM asks in an order of its own, and for groups of layers that need other chunks.
        """
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
        keys = self._keys(offload_keys)
        loaded = 0
        for span in self._spans(len(keys)):
            count = self._read(keys[span], chunk_ids[span])
            loaded += count
            if count < len(keys[span]):
                break
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

    def _read(self, keys: Sequence[bytes], chunk_ids: Sequence[int]) -> int:
        region = self._allocate(len(keys))
        if region is None:
            return 0
        with region:
            reading = self._client.read(
                self.layout,
                keys,
                Placement.contiguous(region, self.layout),
                order=Order.HEAD_FIRST,
                timeout_ms=self._timeout_ms,
            )
            with reading:
                report = reading.wait()
            count = report.resident_prefix
            for place, part in self._pairs(region, len(keys), chunk_ids[:count]):
                part.copy_(place)
        return count

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
