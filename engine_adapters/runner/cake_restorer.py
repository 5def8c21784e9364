"""Restores histories by computing and loading at once (Cake)."""

import time
from collections.abc import Callable, Sequence

from engine_adapters.restore import ComputeCost, LoadCost, Rates, Source
from engine_adapters.runner.cake_restoration import CakeCosts, CakeRestoration, PointerSample
from engine_adapters.runner.kv_cache import KvCache
from engine_adapters.runner.layer_loader import LayerLoader
from engine_adapters.runner.model import Model
from engine_adapters.runner.readers import Readers
from engine_adapters.runner.restoration import RestoredHistory
from engine_adapters.runner.restorer import SPAN_BYTES, SPAN_TOKENS, TIMEOUT_S, check_timeout
from engine_adapters.runner.state_format import StateFormat
from kvstored_client import Client, Order, StateKind

OPENING_S_MAX = 5.0
"""Longest that a request waits for the store to say what it has, if computing it takes longer."""


class CakeRestorer:
    """Begins restorations that share what they learn of both speeds.

    ``compute`` and ``load`` are what is expected at first (``ComputeCost.of_profile``,
    ``LoadCost.of_profile``); every restoration measures both sides and the next one begins
    with that. ``token_budget`` is what a step of the engine may have. ``observer`` hears of
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
            rates=Rates(load, token_budget=token_budget),
        )
        self._opening_s_max = opening_s_max
        self._clock = clock
        self._observer = observer
        self._readers = Readers(
            client,
            state_format,
            order=Order.TAIL_FIRST,
            span_chunks=state_format.span_chunks(span_bytes=span_bytes, span_tokens=span_tokens),
            timeout_s=timeout_s,
            from_end=True,
        )

    @property
    def rates(self) -> Rates:
        """How fast both sides were lately."""
        return self._costs.rates

    def begin(
        self, token_ids: Sequence[int], *, cache: KvCache, first_slot: int
    ) -> CakeRestoration | RestoredHistory:
        """Begins to restore what is stored of ``token_ids``, the last one never; at once."""
        reader = self._readers.begin(token_ids)
        if reader is None:
            return RestoredHistory()
        return CakeRestoration(
            reader,
            self._format,
            self._loader,
            self._costs,
            prompt_tokens=len(token_ids),
            cache=cache,
            first_slot=first_slot,
            opening_s_max=min(self._opening_s_max, self._costs.alone_s(len(token_ids))),
            clock=self._clock,
            observer=self._observer,
        )

    def close(self) -> None:
        """Ends all restorations and waits until they hold nothing any more."""
        self._readers.close()
