"""Times what a restoration computes of a layer: from tokens, from hidden states, from KV."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import torch
from torch import Tensor

from engine_adapters.restore import ComputeCost, Sample
from engine_adapters.restore.least_squares import fit
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment
from engine_adapters.runner.restore.layer_loader import place_kv

SHORT_STEP_TOKENS = 1
"""Of the shortest step, which tells what a step takes besides its tokens: a line through long steps
that other work disturbed may say anything of that."""

LAYERS_TIMED = 2
"""Layers that are recomputed in one measurement at most: all cost the same."""

COLD_BYTES = 128 * 1024 * 1024
"""More than caches hold. States come to a restoration from outside of all caches, and each layer's
weights and room in the cache were last touched a whole model ago."""

ROUGH_TOKENS = (64, 256)
"""Histories by which computing is timed where there is no profile: two points make a line."""


class Recomputation:
    """The first layers of a history from its tokens, ``step_tokens`` at a time."""

    def __init__(self, model: Model, *, token_count_max: int, step_tokens: int) -> None:
        self.layer_count = min(LAYERS_TIMED, model.config.layer_count)
        self._model = model
        self._step_tokens = step_tokens
        self._cache = model.make_cache(token_count_max)

    def __call__(self, token_count: int) -> None:
        """Computes so many tokens."""
        for first in range(0, token_count, self._step_tokens):
            count = min(self._step_tokens, token_count - first)
            segment = Segment(
                request_id=-1,
                first_row=0,
                token_count=count,
                first_position=first,
                first_slot=0,
            )
            self._model.forward(
                [0] * count,
                [segment],
                cache=self._cache,
                sink=NullSink(),
                logit_rows=(),
                layer_stop=self.layer_count,
            )


class Projection:
    """Keys and values from hidden states, of one layer after the other."""

    def __init__(self, model: Model, *, token_count_max: int) -> None:
        self._model = model
        self._cache = model.make_cache(token_count_max)
        self._hidden = _cold_ones(model, (token_count_max, model.config.hidden_size))
        self._call_count = 0

    def __call__(self, token_count: int) -> None:
        """Projects one layer of so many tokens."""
        layer = self._call_count % self._model.config.layer_count
        hidden = self._hidden[self._call_count % len(self._hidden)]
        self._call_count += 1
        self._model.project(
            layer,
            hidden[:token_count],
            first_position=0,
            keys=self._cache.keys[layer, :token_count],
            values=self._cache.values[layer, :token_count],
        )


class Loading:
    """Keys and values from chunks of ``chunk_tokens`` into the cache, layer after layer."""

    def __init__(self, model: Model, *, chunk_count_max: int, chunk_tokens: int) -> None:
        self._model = model
        self._chunk_tokens = chunk_tokens
        self._cache = model.make_cache(chunk_count_max * chunk_tokens)
        heads = self._cache.keys.shape[2:]
        self._stored = _cold_ones(model, (chunk_count_max, 2, chunk_tokens, *heads))
        self._call_count = 0

    def __call__(self, token_count: int) -> None:
        """Loads one layer of so many tokens, whole chunks of them."""
        layer = self._call_count % self._model.config.layer_count
        stored = self._stored[self._call_count % len(self._stored)]
        self._call_count += 1
        place_kv(
            self._model,
            stored[: token_count // self._chunk_tokens],
            keys=self._cache.keys[layer, :token_count],
            values=self._cache.values[layer, :token_count],
            first_position=0,
        )


class ComputeTimer:
    """Measures one layer of ``model`` for several history lengths. One thread only.

    Each time is the median of ``repeats``, after one that does not count. Between two
    repetitions there is a ``pause``, so that no single moment decides.
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
        self.spread = 1.0
        """The slowest repetition of anything over its median."""

    def recompute(self, token_counts: Sequence[int], *, step_tokens: int) -> list[Sample]:
        """C_Token: seconds of one layer, ``step_tokens`` at a time as a restorer does it.

        A step of SHORT_STEP_TOKENS is measured as well.
        """
        work = Recomputation(
            self._model, token_count_max=max(token_counts), step_tokens=step_tokens
        )
        return self._times(work, [SHORT_STEP_TOKENS, *token_counts], work.layer_count)

    def project(self, token_counts: Sequence[int]) -> list[Sample]:
        """C_H: seconds of one layer."""
        work = Projection(self._model, token_count_max=max(token_counts))
        return self._times(work, token_counts, 1)

    def load(self, token_counts: Sequence[int], *, chunk_tokens: int) -> list[Sample]:
        """Seconds in which keys and values of one layer get from chunks into the cache.

        Each count is rounded down to whole chunks, which have ``chunk_tokens`` tokens, or as
        many as the least count has.
        """
        chunk_tokens = min(chunk_tokens, *token_counts)
        whole_counts = sorted({count - count % chunk_tokens for count in token_counts})
        work = Loading(
            self._model,
            chunk_count_max=max(whole_counts) // chunk_tokens,
            chunk_tokens=chunk_tokens,
        )
        return self._times(work, whole_counts, 1)

    def _times(
        self, work: Callable[[int], None], token_counts: Sequence[int], layers: int
    ) -> list[Sample]:
        seconds: dict[int, list[float]] = {count: [] for count in token_counts}
        for count in seconds:
            work(count)
        for repetition in range(self._repeats):
            if repetition:
                self._pause()
            for count, found in seconds.items():
                found.append(self._time(partial(work, count)))
        self.spread = max(self.spread, *map(spread_of, seconds.values()))
        return [Sample(count, median(found) / layers) for count, found in seconds.items()]

    def _time(self, work: Callable[[], None]) -> float:
        started_s = self._clock()
        work()
        if self._model.device.type == "cuda":
            torch.cuda.synchronize(self._model.device)
        return self._clock() - started_s


def spread_of(seconds: Sequence[float]) -> float:
    """The slowest of some repetitions over their median."""
    return max(seconds) / median(seconds)


def rough_compute_cost(
    model: Model, *, step_tokens: int, clock: Callable[[], float] = time.perf_counter
) -> ComputeCost:
    """What computing costs, where nobody has calibrated: a line through two short histories.

    It takes a few steps of a few layers. Attention is left out, so that long histories are
    taken for cheaper than they are, and a slow store is left sooner.
    """
    counts = sorted({min(count, model.config.position_count) for count in ROUGH_TOKENS})
    samples = ComputeTimer(model, repeats=1, clock=clock).recompute(counts, step_tokens=step_tokens)
    return ComputeCost.of_curve(fit(samples, degree=1), model.config.layer_count)


def _cold_ones(model: Model, shape: tuple[int, ...]) -> Tensor:
    """Ones of [copies, *shape]: taken in turn each was last touched COLD_BYTES ago."""
    one = torch.ones(shape, dtype=model.dtype, device=model.device)
    copies = min(model.config.layer_count, -(-COLD_BYTES // one.nbytes))
    return one.expand(copies, *shape).clone()
