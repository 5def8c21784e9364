"""Begins to load the windows of conversations, span after span or layer after layer."""

from dataclasses import replace
from functools import partial

from engine_adapters.conversation.history import dropped
from engine_adapters.reading.arena_share import ArenaShare
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import ComputeCost, LayeredLoad, Preload, Rates
from engine_adapters.restore.source import SOURCE_OF
from engine_adapters.runner.conversation.piece_restoration import PieceRestoration
from engine_adapters.runner.conversation.stored_window import (
    PieceFinder,
    StoredWindow,
    WindowPlace,
)
from engine_adapters.runner.engine.restoration import Restoration
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.layerwise_restoration import (
    LayerwiseRestoration,
    layerwise_limit,
)
from engine_adapters.runner.restore.loading_limit import LoadingLimit
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client, Order


class WindowRestorer:
    """What all restorations of windows share: the client, a share of its arena, what was measured.

    One thread only.
    """

    def __init__(
        self,
        client: Client,
        state_format: StateFormat,
        model: Model,
        options: RestoreOptions,
        rates: Rates,
    ) -> None:
        self._client = client
        self._format = state_format
        self._loader = LayerLoader(model, state_format)
        self._options = replace(options, layer_rates=options.window_rates)
        self._rates = rates
        self._share = ArenaShare.of_client(client)
        span_chunks = options.span_chunks(state_format)
        self._by_layers = ReadOptions(
            order=Order.LAYER_FIRST, span_chunks=span_chunks, is_layer_wise=True
        )
        self._by_spans = ReadOptions(
            order=Order.LAYER_FIRST,
            span_chunks=span_chunks,
            first_chunks=options.first_chunks(state_format),
        )

    def begin(
        self, finder: PieceFinder, place: WindowPlace, *, told_tokens: int, new_tokens: int
    ) -> tuple[Restoration, StoredWindow]:
        """Begins to load the window of ``told_tokens``, cuts included; at once.

        ``new_tokens`` are those that are computed after it.
        """
        # Cuts may have left nothing of it.
        window_tokens = max(1, told_tokens - dropped(place.cuts))
        # Where the window is lost all tokens are computed, none of them after more than a window.
        compute = self._options.compute
        if compute is not None:
            compute = compute.scaled(told_tokens / window_tokens)
        times = self._times(window_tokens, new_tokens)
        is_by_layers = self._is_by_layers(times, compute, window_tokens)
        reader = self._reader(finder, self._by_layers if is_by_layers else self._by_spans)
        window = StoredWindow(finder, self._loader, place)
        options = replace(self._options, compute=compute)
        if is_by_layers:
            by_costs = 1 if times is None else times.buffer_layers
            share = self._rates.loads.begin(options.clock)
            by_layers = LayerwiseRestoration(
                reader,
                window,
                self._format,
                self._loader,
                layerwise_limit(self._format, window_tokens, compute, self._rates, options, share),
                options,
                share=share,
                buffer_layers=options.buffer_layers or by_costs,
            )
            return by_layers, window
        limit = LoadingLimit.of_options(
            self._format,
            window_tokens,
            options,
            rates=self._rates,
            is_on_cpu=self._loader.is_on_cpu,
        )
        settle = partial(limit.settle, self._options.compute, token_count=window_tokens)
        by_spans = PieceRestoration(
            reader, window, self._format, self._loader, limit, options, settle=settle
        )
        return by_spans, window

    def close(self) -> None:
        """Ends all restorations and waits until they hold nothing any more."""
        self._share.close()

    def _reader(self, finder: PieceFinder, read_options: ReadOptions) -> SpanReader:
        timeout_s = self._options.timeout_s
        reader = SpanReader(
            self._client,
            self._format,
            finder,
            read_options,
            remaining_s=lambda: timeout_s,
            share=self._share,
        )
        self._share.begin(reader.start(room_timeout_s=timeout_s))
        return reader

    def _times(self, window_tokens: int, new_tokens: int) -> LayeredLoad | None:
        """What loading takes by layers and by spans; None where nothing was measured."""
        options = self._options
        if options.window_rates is None or options.compute is None:
            return None
        return LayeredLoad.of_costs(
            [SOURCE_OF[layer.kind] for layer in self._format.layout.layers],
            options.window_rates.costs(window_tokens),
            self._rates.compute_cost(options.compute),
            history_tokens=window_tokens,
            new_tokens=new_tokens,
            step_tokens=options.step_tokens,
        )

    def _is_by_layers(
        self, times: LayeredLoad | None, compute: ComputeCost | None, window_tokens: int
    ) -> bool:
        preload = self._options.preload
        if preload is not Preload.AUTO or times is None or compute is None:
            return preload is Preload.LAYERS
        cost = self._rates.compute_cost(compute)
        recompute_s = cost.compute_s(0, window_tokens, self._options.step_tokens)
        return times.is_better(recompute_s=recompute_s + times.layer_count * times.prefill_s)
