"""Makes keys and values in the cache from the stored states of one layer."""

from torch import Tensor

from engine_adapters.runner.kv_cache import KvCache
from engine_adapters.runner.model import Model
from engine_adapters.runner.rotary import rotate
from engine_adapters.runner.staging import staging_for
from engine_adapters.runner.state_format import StateFormat
from kvstored_client import StateKind


class LayerLoader:
    """Fills cache slots layer by layer. One thread only."""

    def __init__(self, model: Model, state_format: StateFormat) -> None:
        self._model = model
        self._format = state_format
        self._staging = staging_for(model.device)

    def load(
        self, layer: int, states: Tensor, *, cache: KvCache, first_slot: int, first_position: int
    ) -> None:
        """Turns the slices of consecutive chunks into keys and values from ``first_slot`` on.

        ``states`` is [chunks, *slice_shape] on the CPU; keys are rotated at the positions
        from ``first_position`` on. Hidden states are projected (HCache, section 3.1).
        """
        token_count = len(states) * self._format.layout.chunk_tokens
        slots = slice(first_slot, first_slot + token_count)
        keys, values = cache.keys[layer, slots], cache.values[layer, slots]
        if self._format.layout.layers[layer].kind is StateKind.HIDDEN:
            with self._staging.brought(states.reshape(token_count, -1)) as hidden:
                self._model.project(
                    layer, hidden, first_position=first_position, keys=keys, values=values
                )
            return
        with self._staging.brought(states) as stored:
            chunks = len(states)
            _by_chunk(values, chunks).copy_(stored[:, 1])
            rotary = self._model.rotary
            if rotary is None:
                _by_chunk(keys, chunks).copy_(stored[:, 0])
                return
            angles = rotary.between(first_position, first_position + token_count)
            rotate(stored[:, 0], angles.by_chunk(chunks), out=_by_chunk(keys, chunks))

    def finish(self) -> None:
        """Waits until the cache holds everything that was loaded."""
        self._staging.finish()


def _by_chunk(tokens: Tensor, chunk_count: int) -> Tensor:
    """View of [tokens, heads, head_dim] as [chunks, chunk_tokens, heads, head_dim]."""
    return tokens.view(chunk_count, -1, *tokens.shape[1:])
