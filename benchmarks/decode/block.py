"""Shows the decoding of a batch to a sink as if every sequence began in it."""

import random
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from engine_adapters.runner.step import NullSink, Segment, StateSink

_TOKEN_BITS = 31


class BlockSink:
    """A sink whose inner one is exchanged between blocks of steps.

    The inner sink sees sequences of its own: their positions begin at 0, their token ids
    are random, so that no chunk is stored already, and they begin spread over
    ``lead_steps``, so that they do not all fill their chunks in the same step.
    """

    def __init__(self, generator: random.Random, *, lead_steps: int) -> None:
        self._generator = generator
        self._lead_steps = lead_steps
        self._inner: StateSink = NullSink()
        self._step = 0
        self._block_steps = 0
        self._first_positions: dict[int, int] = {}

    def begin_block(self, inner: StateSink, *, steps: int) -> None:
        """The next ``steps`` steps are shown to ``inner``."""
        self._inner, self._step, self._block_steps = inner, 0, steps

    def begin_request(self, request_id: int, token_ids: Sequence[int], stored_tokens: int) -> None:
        """Ignored: the inner sink's sequence begins later."""

    def begin_step(self, segments: Sequence[Segment]) -> None:
        """Shows those segments whose sequence has begun."""
        for place, segment in enumerate(segments):
            begins_at = place * self._lead_steps // len(segments)
            if self._step >= begins_at and segment.request_id not in self._first_positions:
                self._begin(segment)
        shown = [
            replace(segment, first_position=segment.first_position - first)
            for segment in segments
            if (first := self._first_positions.get(segment.request_id)) is not None
        ]
        self._step += 1
        self._inner.begin_step(shown)

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        """Passes the states on."""
        self._inner.take(layer, hidden, keys, values)

    def end_step(self) -> None:
        """Passes it on."""
        self._inner.end_step()

    def end_request(self, request_id: int) -> None:
        """Ends the inner sink's sequence if it had begun."""
        if self._first_positions.pop(request_id, None) is not None:
            self._inner.end_request(request_id)

    def _begin(self, segment: Segment) -> None:
        self._first_positions[segment.request_id] = segment.first_position
        token_ids = [self._generator.getrandbits(_TOKEN_BITS) for _ in range(self._block_steps)]
        self._inner.begin_request(segment.request_id, token_ids, 0)
