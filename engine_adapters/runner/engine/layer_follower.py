"""Lets new tokens follow their histories through the layers, as these come."""

from torch import Tensor

from engine_adapters.runner.engine.layered_prefill import LayeredPrefill
from engine_adapters.runner.engine.request import Request
from engine_adapters.runner.engine.restoration import OpenLayers
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import Segment, StateSink


class LayerFollower:
    """Computes what may be computed of requests whose histories come layer after layer.

    The engine's thread only. Raises whatever the model raises.
    """

    def __init__(self, model: Model, cache: KvCache, sink: StateSink) -> None:
        self._model = model
        self._cache = cache
        self._sink = sink

    def follow(self, request: Request, layer_tokens: int, *, is_alone: bool) -> int:
        """Computes at most so many tokens times layers of a request, but a layer in any case.

        None of one that has nothing to follow; how many it computed. Where the step is not the
        request's ``is_alone``, new tokens begin when the buffer of their history is full: begun
        earlier they would make the steps of others longer, and end no sooner.
        """
        history, layer_count = request.open_layers, self._model.config.layer_count
        if history is None or not history.layers:
            return 0
        if request.prefill is None:
            # What is over without any is an ordinary prefill.
            if request.restore is not None or layer_tokens < layer_count:
                return 0
            if not is_alone and history.layers < min(history.buffer_layers, layer_count):
                return 0
            request.prefill = self._begun(request, history, layer_tokens // layer_count)
        prefill, restoration = request.prefill, request.restoration
        token_count = prefill.segment.token_count
        layers = min(history.layers - prefill.next_layer, max(1, layer_tokens // token_count))
        if layers and restoration is not None and request.restore is None:
            restoration.begin_step(token_count)
        prefill.run(layers)
        return token_count * layers

    def finish(self, request: Request) -> Tensor | None:
        """Takes in tokens that were computed in all layers, and shows them to the sink.

        Logits [1, vocab_size] where the last token is one of them.
        """
        prefill = request.prefill
        if prefill is None or not prefill.is_done:
            return None
        request.follow(None)
        prefill.show(self._sink)
        request.computed_count += prefill.segment.token_count
        is_last = prefill.segment.stop_token == len(request.token_ids)
        return prefill.logits() if is_last else None

    def _begun(self, request: Request, history: OpenLayers, token_count: int) -> LayeredPrefill:
        first = history.stop_token
        token_ids = request.token_ids[first : first + token_count]
        segment = Segment(
            request_id=request.request_id,
            first_row=0,
            token_count=len(token_ids),
            first_position=first - history.dropped_count,
            first_slot=request.slots.first,
            dropped_count=history.dropped_count,
        )
        return LayeredPrefill(self._model, token_ids, segment, cache=self._cache)
