"""Times what a restoration computes of a layer: from tokens, from hidden states, from KV."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import torch

from engine_adapters.restore import Sample
from engine_adapters.runner.layer_loader import place_kv
from engine_adapters.runner.model import Model
from engine_adapters.runner.step import NullSink, Segment

LAYERS_TIMED = 2
"""Layers of one measurement at most: all cost the same."""


class ComputeTimer:
    """Measures one layer of ``model`` for several history lengths. One thread only.

    Each time is the median of ``repeats``, after one that does not count.
    """

    def __init__(
        self, model: Model, *, repeats: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._model = model
        self._repeats = repeats
        self._clock = clock

    def recompute(self, token_counts: Sequence[int], *, step_tokens: int) -> list[Sample]:
        """C_Token: seconds of one layer, ``step_tokens`` at a time as a restorer does it."""
        model = self._model
        cache = model.make_cache(max(token_counts))
        layers = min(LAYERS_TIMED, model.config.layer_count)

        def recompute(token_count: int) -> None:
            for first in range(0, token_count, step_tokens):
                count = min(step_tokens, token_count - first)
                segment = Segment(
                    request_id=-1,
                    first_row=0,
                    token_count=count,
                    first_position=first,
                    first_slot=0,
                )
                model.forward(
                    [0] * count,
                    [segment],
                    cache=cache,
                    sink=NullSink(),
                    logit_rows=(),
                    layer_stop=layers,
                )

        return self._times(recompute, token_counts, layers)

    def project(self, token_counts: Sequence[int]) -> list[Sample]:
        """C_H: seconds of one layer."""
        model = self._model
        cache = model.make_cache(max(token_counts))
        hidden = torch.ones(
            max(token_counts), model.config.hidden_size, dtype=model.dtype, device=model.device
        )

        def project(token_count: int) -> None:
            model.project(
                0,
                hidden[:token_count],
                first_position=0,
                keys=cache.keys[0, :token_count],
                values=cache.values[0, :token_count],
            )

        return self._times(project, token_counts, 1)

    def load(self, token_counts: Sequence[int], *, chunk_tokens: int) -> list[Sample]:
        """Seconds in which keys and values of one layer get from chunks into the cache.

        Each count is rounded down to whole chunks, which have ``chunk_tokens`` tokens, or as
        many as the least count has.
        """
        model = self._model
        chunk_tokens = min(chunk_tokens, *token_counts)
        whole_counts = sorted({count - count % chunk_tokens for count in token_counts})
        cache = model.make_cache(max(whole_counts))
        keys, values = cache.keys[0], cache.values[0]
        stored = torch.ones(
            (max(whole_counts) // chunk_tokens, 2, chunk_tokens, *keys.shape[1:]),
            dtype=model.dtype,
            device=model.device,
        )

        def load(token_count: int) -> None:
            place_kv(
                model,
                stored[: token_count // chunk_tokens],
                keys=keys[:token_count],
                values=values[:token_count],
                first_position=0,
            )

        return self._times(load, whole_counts, 1)

    def _times(
        self, work: Callable[[int], None], token_counts: Sequence[int], layers: int
    ) -> list[Sample]:
        return [Sample(count, self._time(partial(work, count)) / layers) for count in token_counts]

    def _time(self, work: Callable[[], None]) -> float:
        seconds = []
        for _ in range(1 + self._repeats):
            started_s = self._clock()
            work()
            if self._model.device.type == "cuda":
                torch.cuda.synchronize(self._model.device)
            seconds.append(self._clock() - started_s)
        return median(seconds[1:])
