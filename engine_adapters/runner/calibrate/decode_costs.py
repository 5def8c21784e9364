"""Times what a restoration decodes: a slice of hidden states, and one of keys and values."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

import torch
from torch import Tensor

from engine_adapters.codecs.codec import Codec, Payload
from engine_adapters.codecs.registry import codec_of_layer
from engine_adapters.runner.calibrate.compute_costs import spread_of
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from kvstored_client import RAW

TOKEN_SEED = 0
"""Of the tokens whose states are encoded: all different, since equal states are sooner decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeCosts:
    """Seconds of decoding one token of one layer, in the mean of the layers that were timed.

    ``spread`` is the slowest repetition of a slice over its median.
    """

    hidden_token_s: float = 0.0
    kv_token_s: float = 0.0
    spread: float = 1.0


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


@dataclass(frozen=True, slots=True)
class _Slice:
    """An encoded slice, and where its states go."""

    codec: Codec
    payload: Payload
    out: Tensor

    def decode(self) -> None:
        self.codec.decode(self.payload, self.out)


class DecodeTimer:
    """Measures how long the states of ``model`` take to decode, on one thread as a span does.

    Each time is the median of ``repeats``, after one that does not count. All slices are decoded
    in each, and ``pause`` is made between two.
    """

    def __init__(
        self,
        model: Model,
        *,
        repeats: int,
        clock: Callable[[], float] = time.perf_counter,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        self._model = model
        self._repeats = repeats
        self._clock = clock
        self._pause = pause

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
        slices = [
            _Slice(codec, codec.encode(decoded), torch.empty_like(decoded))
            for each in (states.hidden, states.kv)
            for codec, decoded in zip(codecs, each, strict=True)
        ]
        results = self._decode_all(slices)
        slice_s = [median(seconds) for seconds in results]
        return DecodeCosts(
            hidden_token_s=fmean(slice_s[: len(layers)]) / token_count,
            kv_token_s=fmean(slice_s[len(layers) :]) / token_count,
            spread=max(map(spread_of, results)),
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

    def _decode_all(self, slices: Sequence[_Slice]) -> list[list[float]]:
        """Seconds of all repetitions of each slice."""
        for each in slices:
            each.decode()
        results: list[list[float]] = [[] for _ in slices]
        for repetition in range(self._repeats):
            if repetition:
                self._pause()
            for result, each in zip(results, slices, strict=True):
                started_s = self._clock()
                each.decode()
                result.append(self._clock() - started_s)
        return results
