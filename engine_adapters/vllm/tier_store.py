"""Moves chunks between vLLM's host tier and the daemon, in threads."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from engine_adapters.vllm.tier_identity import tier_key
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


class TierStore:
    """Chunks of the host tier, ``rows`` [chunk_count, chunk_bytes] of uint8, in the daemon.

    Every method waits for the daemon, so none belongs into the scheduler's thread. Thread-safe;
    a chunk of ``rows`` belongs to one call at a time.
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
    ) -> None:
        self._client = client
        self._rows = rows
        self._timeout_ms = timeout_ms
        self.layout = StateLayout(
            model=fingerprint,
            dtype="bytes",
            layers=(LayerState(StateKind.KV, -(-rows.shape[1] // chunk_tokens)),),
            chunk_tokens=chunk_tokens,
            rotary=Rotary.ROTATED,
        )
        self._span_chunks = max(1, span_bytes // self.layout.layer_stride)

    def known(self, offload_keys: Sequence[bytes]) -> list[bool]:
        """Which leading chunks are stored; nothing behind the first that is not."""
        keys = self._keys(offload_keys)
        found = self._client.match(self.layout, keys).chunk_count if keys else 0
        return [index < found for index in range(len(offload_keys))]

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

    def close(self) -> None:
        """Ends the session; every later call is a miss."""
        self._client.close()

    def _keys(self, offload_keys: Sequence[bytes]) -> list[bytes]:
        """Empty while there is no daemon, which names the namespace."""
        if not self._client.available():
            return []
        namespace = self._client.namespace
        return [tier_key(namespace, self.layout.layout_id, bytes(key)) for key in offload_keys]

    def _spans(self, count: int) -> Iterator[slice]:
        for first in range(0, count, self._span_chunks):
            yield slice(first, min(first + self._span_chunks, count))

    def _put(self, keys: Sequence[bytes], chunk_ids: Sequence[int]) -> bool:
        region = self._allocate(len(keys))
        if region is None:
            return False
        with region:
            for target, chunk in zip(self._slices(region, len(keys)), chunk_ids, strict=True):
                target.copy_(self._rows[chunk])
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
            for source, chunk in zip(self._slices(region, count), chunk_ids, strict=False):
                self._rows[chunk].copy_(source)
        return count

    def _allocate(self, chunk_count: int) -> Region | None:
        return self._client.allocate(Placement.contiguous_bytes(self.layout, chunk_count))

    def _slices(self, region: Region, chunk_count: int) -> Tensor:
        padded = region.tensor(torch.uint8, (chunk_count, self.layout.layer_stride))
        return padded[:, : self._rows.shape[1]]
