"""Restores the history of a request from the store, as far as the store can give it."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from engine_adapters.runner.kv_cache import KvCache
from engine_adapters.runner.request import RestoreReport
from engine_adapters.runner.rotary import RotaryTable, rotate
from engine_adapters.runner.state_format import StateFormat
from kvstored_client import Client, Order, Placement, Read, Region

SPAN_BYTES = 64 * 1024 * 1024
"""Arena bytes of one read unless the caller chooses otherwise."""

SPANS_IN_FLIGHT = 2
"""Reads at once: while one is loaded into the cache the next keeps the devices busy."""

TIMEOUT_S = 30.0
"""A restoration that takes longer is given up; what is missing is computed."""

TIMEOUT_S_MAX = 600.0
"""What the daemon accepts as a lease and as a deadline."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Span:
    """Consecutive chunks that one read brings into one region."""

    first_chunk: int
    chunk_count: int
    region: Region
    read: Read

    def release(self) -> None:
        """Cancels what is not read yet, and frees the region once the daemon lets go of it."""
        self.read.close()
        self.region.release()


class StateRestorer:
    """Fills cache slots with stored states. Never raises because of the store.

    A history that exceeds the arena comes in several reads, one after the other. The
    first chunk that does not arrive whole ends the restoration: everything behind it
    is computed. One thread only.
    """

    def __init__(
        self,
        client: Client,
        state_format: StateFormat,
        rotary: RotaryTable,
        *,
        order: Order = Order.TAIL_FIRST,
        span_bytes: int = SPAN_BYTES,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if not 0 < timeout_s <= TIMEOUT_S_MAX:
            raise ValueError(f"timeout_s must be above 0 and at most {TIMEOUT_S_MAX}")
        self._client = client
        self._format = state_format
        self._rotary = rotary
        self._order = order
        self._span_chunks = max(1, span_bytes // state_format.region_bytes(1))
        self._timeout_s = timeout_s
        self._clock = clock

    def restore(
        self, token_ids: Sequence[int], *, cache: KvCache, first_slot: int
    ) -> RestoreReport:
        """Loads the longest stored prefix of ``token_ids`` into slots from ``first_slot`` on.

        The last token is never restored: its logits are what the request wants.
        """
        started_s = self._clock()
        layout = self._format.layout
        keys = self._client.prefix_keys(layout, token_ids[:-1])
        match = self._client.match(layout, keys, lease_ms=int(self._timeout_s * 1000))
        try:
            report = self._read(keys[: match.chunk_count], cache, first_slot, started_s)
        finally:
            if match.lease is not None:
                match.lease.release()
        return RestoreReport(
            restored_tokens=report.restored_tokens,
            device_bytes=report.device_bytes,
            dram_bytes=report.dram_bytes,
            duration_s=self._clock() - started_s,
        )

    def _read(
        self, keys: Sequence[bytes], cache: KvCache, first_slot: int, started_s: float
    ) -> RestoreReport:
        restored_chunks = device_bytes = dram_bytes = next_chunk = 0
        deadline_s = started_s + self._timeout_s
        spans: deque[_Span] = deque()
        try:
            while True:
                while len(spans) < SPANS_IN_FLIGHT and next_chunk < len(keys):
                    span = self._start(keys, next_chunk, deadline_s)
                    if span is None:
                        break
                    spans.append(span)
                    next_chunk += span.chunk_count
                if not spans:
                    break
                span = spans[0]
                report = span.read.wait(max(0.0, deadline_s - self._clock()))
                # Bytes of a lost session may be those of another region in the next one.
                resident = report.resident_prefix if span.region.is_current else 0
                self._load(span, resident, cache, first_slot)
                restored_chunks += resident
                device_bytes += report.device_bytes
                dram_bytes += report.dram_bytes
                spans.popleft().release()
                if resident < span.chunk_count:
                    break
        finally:
            for span in spans:
                span.release()
        return RestoreReport(
            restored_tokens=restored_chunks * self._format.layout.chunk_tokens,
            device_bytes=device_bytes,
            dram_bytes=dram_bytes,
        )

    def _start(self, keys: Sequence[bytes], first_chunk: int, deadline_s: float) -> _Span | None:
        """Starts the read of as many chunks as fit; None when not even one does."""
        timeout_ms = int((deadline_s - self._clock()) * 1000)
        if timeout_ms <= 0:
            return None
        chunk_count = min(self._span_chunks, len(keys) - first_chunk)
        region = None
        while chunk_count and region is None:
            region = self._client.allocate(self._format.region_bytes(chunk_count))
            if region is None:
                chunk_count //= 2
        if region is None:
            return None
        read = self._client.read(
            self._format.layout,
            keys[first_chunk : first_chunk + chunk_count],
            Placement.contiguous(region, self._format.layout),
            order=self._order,
            timeout_ms=timeout_ms,
        )
        return _Span(first_chunk=first_chunk, chunk_count=chunk_count, region=region, read=read)

    def _load(self, span: _Span, chunk_count: int, cache: KvCache, first_slot: int) -> None:
        """Moves the leading chunks of a span into the cache, rotating keys at their positions."""
        if chunk_count == 0:
            return
        states = self._format.view(span.region, span.chunk_count)[:chunk_count]
        chunk_tokens = self._format.layout.chunk_tokens
        first = span.first_chunk * chunk_tokens
        stop = first + chunk_count * chunk_tokens
        slots = slice(first_slot + first, first_slot + stop)
        angles = self._rotary.between(first, stop).by_chunk(chunk_count)
        for layer in range(states.shape[1]):
            stored = states[:, layer].to(cache.keys.device)
            keys = _by_chunk(cache.keys[layer, slots], chunk_count)
            rotate(stored[:, 0], angles, out=keys)
            _by_chunk(cache.values[layer, slots], chunk_count).copy_(stored[:, 1])


def _by_chunk(tokens: Tensor, chunk_count: int) -> Tensor:
    """View of [tokens, heads, head_dim] as [chunks, chunk_tokens, heads, head_dim]."""
    return tokens.view(chunk_count, -1, *tokens.shape[1:])
