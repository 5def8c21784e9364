"""Restores the history of a request from the store, as far as the store can give it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from engine_adapters.reading.arena_share import ArenaShare
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import pinned
from engine_adapters.restore import (
    LEAST_WAIT_S,
    ComputeCost,
    LayerRates,
    LayerSchedule,
    Rates,
    first_span_chunks,
)
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.loading_limit import LoadingLimit
from engine_adapters.runner.restore.patience import Patience
from engine_adapters.runner.restore.span_restoration import SpanRestoration, Target
from engine_adapters.runner.states.state_format import StateFormat
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
    the first layer's chunks with those of all others, so that little overlaps.

    With ``compute``, what computing costs, no restoration takes much longer than computing
    everything, whatever the store does (``engine_adapters.restore.stake``): a span that comes too
    slowly is computed by the engine, while the next one is read. ``least_wait_s`` is waited in any
    case, however little there is to compute. ``timeout_s`` limits the waits
    of one restoration in any case.

    With ``layer_rates`` as many of the first layers are recomputed as balances both sides by what
    they lately took, at least those that are not stored; without, those alone. Give the same ones
    to all restorers of a layout. One thread only.
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
        compute: ComputeCost | None = None,
        least_wait_s: float = LEAST_WAIT_S,
        layer_rates: LayerRates | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        check_timeout(timeout_s)
        if step_tokens < 1:
            raise ValueError(f"step_tokens must be above 0, not {step_tokens}")
        self._client = client
        self._format = state_format
        self._model = model
        self._loader = LayerLoader(model, state_format)
        self._step_tokens = step_tokens
        self._timeout_s = timeout_s
        self._compute = compute
        self._least_wait_s = least_wait_s
        self._layer_rates = layer_rates
        self._stored = LayerSchedule.of_kinds(layer.kind for layer in state_format.layout.layers)
        self._rates = Rates(None, token_budget=step_tokens)
        self._clock = clock
        self._share = ArenaShare.of_client(client)
        span_chunks = state_format.span_chunks(span_bytes=span_bytes, span_tokens=span_tokens)
        self._options = ReadOptions(
            order=order,
            span_chunks=span_chunks,
            first_chunks=(
                None if compute is None else partial(first_span_chunks, span_chunks=span_chunks)
            ),
            first_layer=self._first_layer,
        )

    def begin(
        self, token_ids: Sequence[int], *, cache: KvCache, first_slot: int
    ) -> SpanRestoration | None:
        """Begins to restore the longest stored prefix of ``token_ids``; returns at once.

        The last token is never restored.
        """
        if len(token_ids) <= self._format.layout.chunk_tokens:
            # Of less than a chunk nothing is stored.
            return None
        target = Target(token_ids=token_ids, cache=cache, first_slot=first_slot)
        reader = self._reader(
            token_ids, self._options, remaining_s=lambda: self._timeout_s, share=self._share
        )
        self._share.begin(reader.start(room_timeout_s=self._timeout_s))
        return self._restoration(reader, target, self._patience())

    def restore(
        self,
        token_ids: Sequence[int],
        *,
        cache: KvCache,
        first_slot: int,
        first_position: int = 0,
    ) -> RestoreReport:
        """As ``begin``, but makes its calls itself and returns when everything is there.

        It ends where computing would begin, which is the caller's. The history begins at
        ``first_position``; raises PositionError when these states cannot be restored there,
        whatever the store holds.
        """
        self._format.check_positions(first_position)
        started_s = self._clock()
        target = Target(
            token_ids=token_ids, cache=cache, first_slot=first_slot, first_position=first_position
        )
        patience = self._patience()
        options = self._options
        if first_position:
            # Layers are computed from the first position of a sequence on, or not at all.
            options = replace(options, first_layer=lambda: 0)
        reader = self._reader(token_ids, options, remaining_s=patience.remaining_s)
        restoration = self._restoration(reader, target, patience)
        try:
            reader.open()
            while not (restoration.is_over or restoration.is_computing):
                restoration.advance(0)
                if restoration.is_waiting:
                    restoration.wait(self._timeout_s)
        finally:
            restoration.close()
        return replace(restoration.report(), duration_s=self._clock() - started_s)

    def close(self) -> None:
        """Ends all restorations that were begun and waits until they hold nothing any more."""
        self._share.close()

    def _reader(
        self,
        token_ids: Sequence[int],
        options: ReadOptions,
        *,
        remaining_s: Callable[[], float],
        share: ArenaShare | None = None,
    ) -> SpanReader:
        layout, lease_ms = self._format.layout, int(self._timeout_s * 1000)
        find = pinned(self._client, layout, token_ids[:-1], lease_ms=lease_ms)
        return SpanReader(
            self._client, self._format, find, options, remaining_s=remaining_s, share=share
        )

    def _patience(self) -> Patience:
        return Patience(self._timeout_s, self._clock)

    def _first_layer(self) -> int:
        """The first layer to read of the next span; those before it are recomputed."""
        if self._layer_rates is None:
            return 0
        return self._layer_rates.recomputed_layers(self._stored)

    def _limit(self, token_count: int) -> LoadingLimit:
        return LoadingLimit(
            self._format,
            token_count,
            compute=self._compute,
            rates=self._rates,
            least_wait_s=self._least_wait_s,
            layer_rates=self._layer_rates,
            is_on_cpu=self._model.device.type == "cpu",
            clock=self._clock,
        )

    def _restoration(
        self, reader: SpanReader, target: Target, patience: Patience
    ) -> SpanRestoration:
        return SpanRestoration(
            reader,
            self._format,
            self._model,
            self._loader,
            target,
            step_tokens=self._step_tokens,
            patience=patience,
            limit=self._limit(len(target.token_ids)),
            clock=self._clock,
        )
