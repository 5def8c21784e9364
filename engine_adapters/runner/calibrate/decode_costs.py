"""Times what a restoration decodes: a slice of hidden states, and one of keys and values."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

import torch
from torch import Tensor

from engine_adapters.codecs.codec import Codec
from engine_adapters.codecs.registry import codec_of_layer
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from kvstored_client import RAW

TOKEN_SEED = 0
"""Of the tokens whose states are encoded: all different, since equal states are sooner decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeCosts:
    """Seconds of decoding one token of one layer, in the mean of the layers that were timed."""

    hidden_token_s: float = 0.0
    kv_token_s: float = 0.0


@dataclass(slots=True)
class _KeptStates(NullSink):
    """The states of some layers of one step, as slices."""

    layers: Sequence[int]
    hidden: list[Tensor] = field(default_factory=list)
    kv: list[Tensor] = field(default_factory=list)

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        """Copies a wanted layer."""
        if layer in self.layers:
            self.hidden.append(hidden.cpu().clone())
            self.kv.append(torch.stack([keys, values]).cpu())


class DecodeTimer:
    """Measures how long the states of ``model`` take to decode, on one thread as a span does.

    Each time is the median of ``repeats``, after one that does not count.
    """

    def __init__(
        self, model: Model, *, repeats: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._model = model
        self._repeats = repeats
        self._clock = clock

    def measure(self, codec: str, *, chunk_tokens: int) -> DecodeCosts:
        """Of slices of ``chunk_tokens``; nothing for RAW. Raises CodecError.

        The states are those that the model computes of random tokens, of the first, a middle and
        the last layer: how long they take depends on how well they can be encoded.
        """
        if codec == RAW:
            return DecodeCosts()
        count = self._model.config.layer_count
        layers = sorted({0, count // 2, count - 1})
        codecs = [codec_of_layer(codec, layer=layer, layer_count=count) for layer in layers]
        token_count = min(chunk_tokens, self._model.config.position_count)
        states = self._states(layers, token_count)
        return DecodeCosts(
            hidden_token_s=fmean(map(self._decode_s, codecs, states.hidden)) / token_count,
            kv_token_s=fmean(map(self._decode_s, codecs, states.kv)) / token_count,
        )

    def _states(self, layers: Sequence[int], token_count: int) -> _KeptStates:
        generator = torch.Generator().manual_seed(TOKEN_SEED)
        vocabulary = self._model.config.vocab_size
        sink = _KeptStates(layers)
        segment = Segment(
            request_id=-1, first_row=0, token_count=token_count, first_position=0, first_slot=0
        )
        self._model.forward(
            torch.randint(vocabulary, (token_count,), generator=generator).tolist(),
            [segment],
            cache=self._model.make_cache(token_count),
            sink=sink,
            logit_rows=(),
            layer_stop=max(layers) + 1,
        )
        return sink

    def _decode_s(self, codec: Codec, states: Tensor) -> float:
        payload = codec.encode(states)
        out = torch.empty_like(states)
        seconds = []
        for _ in range(1 + self._repeats):
            started_s = self._clock()
            codec.decode(payload, out)
            seconds.append(self._clock() - started_s)
        return median(seconds[1:])
