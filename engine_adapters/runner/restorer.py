"""Restores the history of a request from the store, as far as the store can give it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from engine_adapters.runner.kv_cache import KvCache
from engine_adapters.runner.layer_loader import LayerLoader
from engine_adapters.runner.model import Model
from engine_adapters.runner.patience import Patience
from engine_adapters.runner.read_ahead import ReadAhead
from engine_adapters.runner.readers import Readers
from engine_adapters.runner.restoration import RestoredHistory
from engine_adapters.runner.restore_report import RestoreReport
from engine_adapters.runner.span_restoration import (
    SpanRestoration,
    SpanSource,
    StoredPrefix,
    Target,
)
from engine_adapters.runner.state_format import StateFormat
from kvstored_client import Client, Order

SPAN_BYTES = 64 * 1024 * 1024
"""Arena bytes of one span at most, unless the caller chooses otherwise."""

SPAN_TOKENS = 1024
"""Tokens of one span at most: the begin of a span's first read and its last projection overlap
with nothing of the same span, and smaller matrices would compute less efficiently."""

TIMEOUT_S = 30.0
"""Longest that one restoration waits for the store; what is missing then is computed."""

TIMEOUT_S_MAX = 600.0
"""What the daemon accepts as a lease and as a deadline."""

STEP_TOKENS = 512
"""Tokens of one step in which first layers are recomputed, unless told otherwise."""


def check_timeout(timeout_s: float) -> None:
    """Raises ValueError for a time that no daemon accepts."""
    if not 0 < timeout_s <= TIMEOUT_S_MAX:
        raise ValueError(f"timeout_s must be above 0 and at most {TIMEOUT_S_MAX}")


class StateRestorer:
    """Fills cache slots with stored states. Never raises because of the store.

    Carries out what the layout says of each layer (HCache, section 4.1): while the reads
    run, layer after layer, the first layers are recomputed from the tokens; then each
    layer is made from its stored states as soon as they are there, while the next one is
    being read. A history comes in spans of chunks, one after the other.

    What is restored is the longest prefix of chunks that came whole, over all layers.
    Everything behind it is computed, also where a part of its layers is in the cache
    already. ``order`` is that of the reads within a span: TAIL_FIRST and HEAD_FIRST bring
    the first layer's chunks with those of all others, so that little overlaps. One thread only.
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
        check_timeout(timeout_s)
        if step_tokens < 1:
            raise ValueError(f"step_tokens must be above 0, not {step_tokens}")
        self._client = client
        self._format = state_format
        self._model = model
        self._loader = LayerLoader(model, state_format)
        self._order = order
        self._span_chunks = state_format.span_chunks(span_bytes=span_bytes, span_tokens=span_tokens)
        self._step_tokens = step_tokens
        self._timeout_s = timeout_s
        self._clock = clock
        self._readers = Readers(
            client,
            state_format,
            order=order,
            span_chunks=self._span_chunks,
            timeout_s=timeout_s,
        )

    def begin(
        self, token_ids: Sequence[int], *, cache: KvCache, first_slot: int
    ) -> SpanRestoration | RestoredHistory:
        """Begins to restore the longest stored prefix of ``token_ids``; returns at once.

        The last token is never restored.
        """
        reader = self._readers.begin(token_ids)
        if reader is None:
            return RestoredHistory()
        target = Target(token_ids=token_ids, cache=cache, first_slot=first_slot)
        return self._restoration(StoredPrefix(reader), target, self._patience())

    def restore(
        self,
        token_ids: Sequence[int],
        *,
        cache: KvCache,
        first_slot: int,
        first_position: int = 0,
    ) -> RestoreReport:
        """As ``begin``, but makes its calls itself and returns when everything is there.

        The history begins at ``first_position``; raises PositionError when these states
        cannot be restored there, whatever the store holds.
        """
        self._format.check_positions(first_position)
        started_s = self._clock()
        layout = self._format.layout
        keys = self._client.prefix_keys(layout, token_ids[:-1])
        match = self._client.match(layout, keys, lease_ms=int(self._timeout_s * 1000))
        target = Target(
            token_ids=token_ids, cache=cache, first_slot=first_slot, first_position=first_position
        )
        patience = self._patience()
        ahead = ReadAhead(
            self._client,
            self._format,
            keys[: match.chunk_count],
            order=self._order,
            span_chunks=self._span_chunks,
            remaining_s=patience.remaining_s,
        )
        restoration = self._restoration(ahead, target, patience)
        try:
            while not restoration.is_over:
                restoration.advance(0)
                if restoration.is_waiting:
                    restoration.wait(self._timeout_s)
        finally:
            restoration.close()
            if match.lease is not None:
                match.lease.release()
        return replace(restoration.report(), duration_s=self._clock() - started_s)

    def close(self) -> None:
        """Ends all restorations that were begun and waits until they hold nothing any more."""
        self._readers.close()

    def _patience(self) -> Patience:
        return Patience(self._timeout_s, self._clock)

    def _restoration(
        self, source: SpanSource, target: Target, patience: Patience
    ) -> SpanRestoration:
        return SpanRestoration(
            source,
            self._format,
            self._model,
            self._loader,
            target,
            step_tokens=self._step_tokens,
            patience=patience,
            clock=self._clock,
        )
