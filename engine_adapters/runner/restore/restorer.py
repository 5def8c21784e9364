"""Begins the restorations of requests, each as far as the store can give its history."""

from collections.abc import Sequence
from dataclasses import replace

from engine_adapters.reading.arena_share import ArenaShare
from engine_adapters.reading.read_options import ReadOptions
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.reading.stored_pieces import pinned
from engine_adapters.restore import LayerSchedule, Rates
from engine_adapters.runner.engine.restoration import Restoration
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.restore.cake_restoration import CakeRestoration
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.layered_history import PromptHistory
from engine_adapters.runner.restore.layerwise_restoration import (
    LayerwiseRestoration,
    layerwise_limit,
)
from engine_adapters.runner.restore.loading_limit import LoadingLimit
from engine_adapters.runner.restore.restore_options import RestoreOptions, Way
from engine_adapters.runner.restore.span_restoration import SpanRestoration
from engine_adapters.runner.restore.target import Target
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import Client, Order

DEFAULTS = RestoreOptions()


class Restorer:
    """Fills cache slots with stored states, in the way that its options name.

    Its restorations share what they learn of the speeds of computing and of loading, and the next
    one begins with that. Raises ValueError for a layout of which some layers are not stored, but
    by SPANS: without their inputs the tokens have to be computed in order. One thread only; never
    raises because of the store.
    """

    def __init__(
        self,
        client: Client,
        state_format: StateFormat,
        model: Model,
        options: RestoreOptions = DEFAULTS,
    ) -> None:
        if options.way is not Way.SPANS and state_format.recomputed_layers:
            raise ValueError(
                f"{state_format.recomputed_layers} layers of this layout are not stored: restoring "
                f"it by {options.way} needs every layer as keys and values or as hidden states"
            )
        self._client = client
        self._format = state_format
        self._model = model
        self.options = options
        self._loader = LayerLoader(model, state_format)
        self._pinned_epoch = 0
        self._stored = LayerSchedule.of_kinds(layer.kind for layer in state_format.layout.layers)
        self._rates = Rates(options.load, token_budget=options.step_tokens, doubt=options.doubt)
        self._share = ArenaShare.of_client(client)
        self._read_options = self._options_of_reads()

    @property
    def rates(self) -> Rates:
        """How fast both sides were lately."""
        return self._rates

    def begin(
        self,
        token_ids: Sequence[int],
        *,
        cache: KvCache,
        first_slot: int,
        first_position: int = 0,
    ) -> Restoration | None:
        """Begins to restore what is stored of ``token_ids``, the last one never; at once.

        None where nothing can be stored of them. The history begins at ``first_position``; raises
        PositionError when these states cannot be restored there, whatever the store holds.
        """
        self._format.check_positions(first_position)
        layout = self._format.layout
        if len(token_ids) <= layout.chunk_tokens:
            # Of less than a chunk nothing is stored.
            return None
        self._pin()
        read_options, timeout_s = self._read_options, self.options.timeout_s
        if first_position:
            # Layers are computed from the first position of a sequence on, or not at all.
            read_options = replace(read_options, first_layer=lambda: 0)
        reader = SpanReader(
            self._client,
            self._format,
            pinned(self._client, layout, token_ids[:-1], lease_ms=int(timeout_s * 1000)),
            read_options,
            remaining_s=lambda: timeout_s,
            share=self._share,
        )
        self._share.begin(reader.start(room_timeout_s=timeout_s))
        target = Target(
            token_ids=token_ids, cache=cache, first_slot=first_slot, first_position=first_position
        )
        return self._begun(reader, target)

    def close(self) -> None:
        """Ends all restorations and waits until they hold nothing any more."""
        self._share.close()
        self._loader.pin(None)
        self._pinned_epoch = 0

    def _pin(self) -> None:
        """Once for each session, of which every one has memory of its own."""
        if self._client.epoch != self._pinned_epoch and (memory := self._client.arena_memory):
            self._loader.pin(memory)
            self._pinned_epoch = self._client.epoch

    def _begun(self, reader: SpanReader, target: Target) -> Restoration:
        options = self.options
        if options.way is Way.SPANS:
            return SpanRestoration(
                reader,
                self._format,
                self._model,
                self._loader,
                target,
                self._limit(len(target.token_ids)),
                options,
            )
        if options.way is Way.LAYERS:
            share, token_count = self._rates.loads.begin(options.clock), len(target.token_ids)
            return LayerwiseRestoration(
                reader,
                PromptHistory(self._loader, target, chunk_tokens=self._format.layout.chunk_tokens),
                self._format,
                self._loader,
                layerwise_limit(
                    self._format, token_count, options.compute, self._rates, options, share
                ),
                options,
                share=share,
                buffer_layers=options.buffer_layers or 1,
            )
        compute, load = options.compute, options.load
        assert compute is not None
        assert load is not None
        return CakeRestoration(
            reader,
            self._format,
            self._loader,
            target,
            self._rates,
            options,
            compute=compute,
            load=load,
        )

    def _options_of_reads(self) -> ReadOptions:
        options = self.options
        span_chunks = options.span_chunks(self._format)
        if options.way is Way.BOTH_ENDS:
            return ReadOptions(
                order=Order.TAIL_FIRST, span_chunks=span_chunks, from_end=True, reads_prefix=False
            )
        if options.way is Way.LAYERS:
            return ReadOptions(order=Order.LAYER_FIRST, span_chunks=span_chunks, is_layer_wise=True)
        return ReadOptions(
            order=options.order,
            span_chunks=span_chunks,
            first_chunks=options.first_chunks(self._format),
            first_layer=self._first_layer,
        )

    def _first_layer(self) -> int:
        """The first layer to read of the next span; those before it are recomputed."""
        layer_rates = self.options.layer_rates
        return 0 if layer_rates is None else layer_rates.recomputed_layers(self._stored)

    def _limit(self, token_count: int) -> LoadingLimit:
        return LoadingLimit.of_options(
            self._format,
            token_count,
            self.options,
            rates=self._rates,
            is_on_cpu=self._model.device.type == "cpu",
        )
