"""Restores the history of a request from the store, as far as the store can give it."""

import time
from collections.abc import Callable, Sequence

from engine_adapters.runner.kv_cache import KvCache
from engine_adapters.runner.layer_loader import LayerLoader
from engine_adapters.runner.model import Model
from engine_adapters.runner.read_ahead import ReadAhead
from engine_adapters.runner.request import RestoreReport
from engine_adapters.runner.span import Span
from engine_adapters.runner.state_format import StateFormat
from engine_adapters.runner.step import NullSink, Segment
from kvstored_client import Client, Order

SPAN_BYTES = 64 * 1024 * 1024
"""Arena bytes of one span at most, unless the caller chooses otherwise."""

SPAN_TOKENS = 1024
"""Tokens of one span at most: a span's first read and its last projection overlap with
nothing of the same span, and smaller matrices would compute less efficiently."""

TIMEOUT_S = 30.0
"""Longest that one restoration waits for the store; what is missing then is computed."""

TIMEOUT_S_MAX = 600.0
"""What the daemon accepts as a lease and as a deadline."""

STEP_TOKENS = 512
"""Tokens of one step in which first layers are recomputed, unless told otherwise."""


class StateRestorer:
    """Fills cache slots with stored states. Never raises because of the store.

    Carries out what the layout says of each layer (HCache, section 4.1): while the reads
    run, layer after layer, the first layers are recomputed from the tokens; then each
    layer is made from its stored states as soon as they are there, while the next one is
    being read. A history comes in spans of chunks, one after the other.

    What is restored is the longest prefix of chunks that came whole, over all layers.
    Everything behind it is computed, also where a part of its layers is in the cache
    already. ``order`` is that of the reads within a span: TAIL_FIRST and HEAD_FIRST give
    the first layer last, so that nothing overlaps. One thread only.
    """

    def __init__(
        self,
        client: Client,
        state_format: StateFormat,
        model: Model,
        *,
        order: Order = Order.LAYER_FIRST,
        span_bytes: int = SPAN_BYTES,
        span_tokens: int = SPAN_TOKENS,
        step_tokens: int = STEP_TOKENS,
        timeout_s: float = TIMEOUT_S,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if not 0 < timeout_s <= TIMEOUT_S_MAX:
            raise ValueError(f"timeout_s must be above 0 and at most {TIMEOUT_S_MAX}")
        if step_tokens < 1:
            raise ValueError(f"step_tokens must be above 0, not {step_tokens}")
        self._client = client
        self._format = state_format
        self._model = model
        self._loader = LayerLoader(model, state_format)
        self._order = order
        self._span_chunks = max(
            1,
            min(
                span_bytes // state_format.span_bytes(1),
                span_tokens // state_format.layout.chunk_tokens,
            ),
        )
        self._step_tokens = step_tokens
        self._timeout_s = timeout_s
        self._clock = clock
        self._waited_s = 0.0

    def restore(
        self,
        token_ids: Sequence[int],
        *,
        cache: KvCache,
        first_slot: int,
        first_position: int = 0,
    ) -> RestoreReport:
        """Restores the longest stored prefix of ``token_ids`` into slots from ``first_slot`` on.

        The last token is never restored: its logits are what the request wants. The
        history begins at ``first_position``; raises PositionError when these states
        cannot be restored there, whatever the store holds.
        """
        self._format.check_positions(first_position)
        started_s = self._clock()
        self._waited_s = 0.0
        layout = self._format.layout
        keys = self._client.prefix_keys(layout, token_ids[:-1])
        match = self._client.match(layout, keys, lease_ms=int(self._timeout_s * 1000))
        ahead = ReadAhead(
            self._client,
            self._format,
            keys[: match.chunk_count],
            order=self._order,
            span_chunks=self._span_chunks,
            remaining_s=self._remaining_s,
        )
        restored_chunks = 0
        try:
            while (span := ahead.first()) is not None:
                self._recompute(token_ids, span, ahead, cache=cache, first_slot=first_slot)
                chunk_count = self._load(
                    span, ahead, cache=cache, first_slot=first_slot, first_position=first_position
                )
                restored_chunks += chunk_count
                ahead.pop()
                if chunk_count < span.chunk_count:
                    break
            self._loader.finish()
        finally:
            ahead.close()
            if match.lease is not None:
                match.lease.release()
        return RestoreReport(
            restored_tokens=restored_chunks * layout.chunk_tokens,
            device_bytes=ahead.device_bytes,
            dram_bytes=ahead.dram_bytes,
            waited_s=self._waited_s,
            duration_s=self._clock() - started_s,
        )

    def _remaining_s(self) -> float:
        """How long the store may still be waited for. Computing does not count."""
        return max(0.0, self._timeout_s - self._waited_s)

    def _recompute(
        self,
        token_ids: Sequence[int],
        span: Span,
        ahead: ReadAhead,
        *,
        cache: KvCache,
        first_slot: int,
    ) -> None:
        """Computes the layers that are not stored, of the chunks that may still come whole."""
        if not self._format.recomputed_layers:
            return
        first = span.first_token
        while first < (stop := span.first_token + self._possible_tokens(span)):
            stop = min(stop, first + self._step_tokens)
            segment = Segment(
                request_id=-1,
                first_row=0,
                token_count=stop - first,
                first_position=first,
                first_slot=first_slot,
            )
            self._model.forward(
                token_ids[first:stop],
                [segment],
                cache=cache,
                sink=NullSink(),
                logit_rows=(),
                layer_stop=self._format.recomputed_layers,
            )
            first = stop
            ahead.advance()

    def _possible_tokens(self, span: Span) -> int:
        return span.resident_chunks() * self._format.layout.chunk_tokens

    def _load(
        self,
        span: Span,
        ahead: ReadAhead,
        *,
        cache: KvCache,
        first_slot: int,
        first_position: int,
    ) -> int:
        """Loads layer after layer; how many leading chunks came whole."""
        chunk_count = span.chunk_count
        for layer in range(self._format.recomputed_layers, self._format.layout.layer_count):
            ahead.advance()
            started_s = self._clock()
            chunk_count = min(chunk_count, span.wait_layer(layer, self._remaining_s()))
            self._waited_s += self._clock() - started_s
            if chunk_count == 0:
                break
            self._loader.load(
                layer,
                span.states(layer, chunk_count),
                cache=cache,
                first_slot=first_slot + span.first_token,
                first_position=first_position + span.first_token,
            )
        return chunk_count
