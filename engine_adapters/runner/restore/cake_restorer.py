"""Restores histories by computing and loading at once (Cake)."""

import time
from collections.abc import Callable, Sequence

from engine_adapters.reading.arena_share import ArenaShare
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import pinned
from engine_adapters.restore import SPREAD_UNKNOWN, ComputeCost, LoadCost, Rates, Source
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.cake_costs import CakeCosts
from engine_adapters.runner.restore.cake_restoration import (
    OPENING_SHARE,
    CakeRestoration,
    PointerSample,
)
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.restorer import (
    SPAN_BYTES,
    SPAN_TOKENS,
    TIMEOUT_S,
    check_timeout,
)
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client, Order, StateKind

OPENING_S_MAX = 0.5
"""Longest that a request computes nothing while the store has not said what it has."""


class CakeRestorer:
    """Begins restorations that share what they learn of both speeds.

    ``compute`` and ``load`` are what is expected at first (``ComputeCost.of_profile``,
    ``LoadCost.of_profile``); every restoration measures both sides and the next one begins
    with that. ``token_budget`` is what a step of the engine may have, ``doubt`` that of the
    profile (``CostProfile.doubt``). ``observer`` hears of
    every decision. Raises ValueError for a layout of which some layers are not stored: their
    tokens have to be computed in order. One thread only; never raises because of the store.
    """

    def __init__(
        self,
        client: Client,
        state_format: StateFormat,
        model: Model,
        *,
        compute: ComputeCost,
        load: LoadCost,
        token_budget: int,
        doubt: float = SPREAD_UNKNOWN,
        span_bytes: int = SPAN_BYTES,
        span_tokens: int = SPAN_TOKENS,
        timeout_s: float = TIMEOUT_S,
        opening_s_max: float = OPENING_S_MAX,
        clock: Callable[[], float] = time.perf_counter,
        observer: Callable[[PointerSample], None] = lambda _: None,
    ) -> None:
        check_timeout(timeout_s)
        if state_format.recomputed_layers:
            raise ValueError(
                f"{state_format.recomputed_layers} layers of this layout are not stored: mode "
                "cake needs every layer as keys and values or as hidden states"
            )
        self._format = state_format
        self._loader = LayerLoader(model, state_format)
        kinds = {state.kind for state in state_format.layout.layers}
        self._costs = CakeCosts(
            compute=compute,
            load=load,
            source=Source.HIDDEN if StateKind.HIDDEN in kinds else Source.KV,
            rates=Rates(load, token_budget=token_budget, doubt=doubt),
        )
        self._opening_s_max = opening_s_max
        self._clock = clock
        self._observer = observer
        self._client = client
        self._timeout_s = timeout_s
        self._share = ArenaShare.of_client(client)
        self._options = ReadOptions(
            order=Order.TAIL_FIRST,
            span_chunks=state_format.span_chunks(span_bytes=span_bytes, span_tokens=span_tokens),
            from_end=True,
            reads_prefix=False,
        )

    @property
    def rates(self) -> Rates:
        """How fast both sides were lately."""
        return self._costs.rates

    def begin(
        self, token_ids: Sequence[int], *, cache: KvCache, first_slot: int
    ) -> CakeRestoration | None:
        """Begins to restore what is stored of ``token_ids``, the last one never; at once."""
        layout = self._format.layout
        if len(token_ids) <= layout.chunk_tokens:
            # Of less than a chunk nothing is stored.
            return None
        lease_ms = int(self._timeout_s * 1000)
        reader = SpanReader(
            self._client,
            self._format,
            pinned(self._client, layout, token_ids[:-1], lease_ms=lease_ms),
            self._options,
            remaining_s=lambda: self._timeout_s,
            share=self._share,
        )
        self._share.begin(reader.start(room_timeout_s=self._timeout_s))
        return CakeRestoration(
            reader,
            self._format,
            self._loader,
            self._costs,
            prompt_tokens=len(token_ids),
            cache=cache,
            first_slot=first_slot,
            opening_s_max=min(
                self._opening_s_max, OPENING_SHARE * self._costs.alone_s(len(token_ids))
            ),
            clock=self._clock,
            observer=self._observer,
        )

    def close(self) -> None:
        """Ends all restorations and waits until they hold nothing any more."""
        self._share.close()
