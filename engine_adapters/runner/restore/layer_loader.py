"""Makes keys and values in the cache from the stored states of one layer."""

from torch import Tensor

from engine_adapters.device_copies.landing import Landing
from engine_adapters.device_copies.open_copies import open_copies
from engine_adapters.reading.piece import stretches
from engine_adapters.reading.span import Span
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.rotary import rotate
from engine_adapters.runner.restore.target import Target
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import StateKind


class LayerLoader:
    """Fills cache slots layer by layer. One thread only."""

    def __init__(self, model: Model, state_format: StateFormat) -> None:
        self._model = model
        self._format = state_format
        self._copies = open_copies(model.device)
        self.is_on_cpu = model.device.type == "cpu"
        """On a GPU work has only been launched when ``load`` returns."""

    def pin(self, memory: memoryview | None) -> None:
        """States will come from this memory of the host, that of the session, or none any more."""
        self._copies.pin(memory)

    def load(
        self,
        layer: int,
        states: Tensor,
        *,
        cache: KvCache,
        first_slot: int,
        first_position: int,
    ) -> Landing:
        """Turns the slices of consecutive chunks into keys and values from ``first_slot`` on.

        ``states`` is [chunks, *slice_shape] on the CPU, of as many tokens of each chunk as it
        has; keys are rotated at the positions from ``first_position`` on. Hidden states are
        projected (HCache, section 3.1). On a GPU the work has only been launched when this returns,
        and the bytes of ``states`` are needed until the landing is over.
        """
        if self._format.layout.layers[layer].kind is StateKind.HIDDEN:
            inputs = states.reshape(-1, self._format.hidden_size)
            slots = slice(first_slot, first_slot + len(inputs))
            with self._copies.brought(inputs) as brought:
                self._model.project(
                    layer,
                    brought.tensor,
                    first_position=first_position,
                    keys=cache.keys[layer, slots],
                    values=cache.values[layer, slots],
                )
            return brought.landing
        slots = slice(first_slot, first_slot + len(states) * states.shape[2])
        return self._load_kv(
            states,
            keys=cache.keys[layer, slots],
            values=cache.values[layer, slots],
            first_position=first_position,
        )

    def load_pieces(self, span: Span, layer: int, chunks: range, target: Target) -> None:
        """Loads a layer of some chunks of a span, each to where its tokens stand in ``target``.

        They need not follow each other, nor be complete.
        """
        for run in stretches(span.pieces, chunks):
            first_token = span.pieces[run.start].first_position
            self.load_of(
                span,
                layer,
                span.states(layer, len(run), first_chunk=run.start),
                cache=target.cache,
                first_slot=target.first_slot + first_token,
                first_position=target.first_position + first_token,
            )

    def load_of(
        self,
        span: Span,
        layer: int,
        states: Tensor,
        *,
        cache: KvCache,
        first_slot: int,
        first_position: int,
    ) -> None:
        """As ``load`` of states of a span, which is used until their bytes are needed no more."""
        landing = self.load(
            layer,
            states,
            cache=cache,
            first_slot=first_slot,
            first_position=first_position,
        )
        span.uses.add(landing)

    def _load_kv(
        self, states: Tensor, *, keys: Tensor, values: Tensor, first_position: int
    ) -> Landing:
        with self._copies.brought(states) as brought:
            place_kv(
                self._model,
                brought.tensor,
                keys=keys,
                values=values,
                first_position=first_position,
            )
        return brought.landing

    def finish(self) -> None:
        """Waits until the cache holds everything that was loaded."""
        self._copies.mark().wait()


def place_kv(
    model: Model, stored: Tensor, *, keys: Tensor, values: Tensor, first_position: int
) -> None:
    """Copies stored keys and values, which are on the model's device, into the cache.

    ``stored`` is [chunks, 2, tokens of each, heads, head_dim], ``keys`` and ``values`` are
    [tokens, heads, head_dim]; keys are rotated at the positions from ``first_position`` on.
    """
    chunks = len(stored)
    _by_chunk(values, chunks).copy_(stored[:, 1])
    if model.rotary is None:
        _by_chunk(keys, chunks).copy_(stored[:, 0])
        return
    angles = model.rotary.between(first_position, first_position + len(keys))
    rotate(stored[:, 0], angles.by_chunk(chunks), out=_by_chunk(keys, chunks))


def _by_chunk(tokens: Tensor, chunk_count: int) -> Tensor:
    """View of [tokens, heads, head_dim] as [chunks, chunk_tokens, heads, head_dim]."""
    return tokens.view(chunk_count, -1, *tokens.shape[1:])
