"""A model that notes when each of its steps had really ended."""

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from benchmarks.cake.traces import ComputeTrace
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.model_config import ModelConfig
from engine_adapters.runner.model.model_weights import ModelWeights
from engine_adapters.runner.model.step import NullSink, Segment, StateSink


class TracedModel(Model):
    """Between ``begin`` and ``end`` it waits for the device after each step. One thread only.

    So a device is never ahead of what the trace says, and what a step takes is known.
    """

    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        super().__init__(config, weights)
        self._begun_s: float | None = None
        self._steps: list[tuple[float, int]] = []
        self._chosen_from: list[Tensor] = []
        self.margins: list[float] = []
        """Of each token that was chosen: how far it was from the next one, in standard deviations
        of all logits; once the request has ended."""

    def warm_up(self, lengths: Sequence[int], *, stop_position: int) -> None:
        """Steps of so many tokens, at the front and up to ``stop_position``.

        Libraries choose and load a kernel for each length, which takes them longer than the step.
        """
        cache = self.make_cache(stop_position)
        for length in lengths:
            for first in {0, stop_position - length}:
                segment = Segment(
                    request_id=0,
                    first_row=0,
                    token_count=length,
                    first_position=first,
                    first_slot=0,
                )
                self.forward([0] * length, [segment], cache=cache, sink=NullSink(), logit_rows=[])
        self.finish()

    def begin(self) -> None:
        """The steps of one request follow."""
        self.finish()
        self._steps, self._chosen_from = [], []
        self._begun_s = time.perf_counter()

    def end(self) -> ComputeTrace:
        """When which tokens were computed."""
        self._begun_s = None
        self.margins = [_margin(row) for logits in self._chosen_from for row in logits]
        times_s, positions = zip(*self._steps, strict=True)
        return ComputeTrace(times_s, positions)

    def forward(
        self,
        token_ids: Sequence[int],
        segments: Sequence[Segment],
        *,
        cache: KvCache,
        sink: StateSink,
        logit_rows: Sequence[int],
        layer_stop: int | None = None,
    ) -> Tensor:
        """As of any model."""
        logits = super().forward(
            token_ids,
            segments,
            cache=cache,
            sink=sink,
            logit_rows=logit_rows,
            layer_stop=layer_stop,
        )
        if self._begun_s is not None:
            self.finish()
            stop = max(part.stop_position for part in segments)
            self._steps.append((time.perf_counter() - self._begun_s, stop))
            self._chosen_from.append(logits)
        return logits


@torch.inference_mode()
def _margin(logits: Tensor) -> float:
    found = logits.float()
    first, second = found.topk(2).values.tolist()
    return float((first - second) / found.std())
