"""A batch of sequences that decode, one token of each in every step."""

import time

from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import Segment, StateSink


class DecodingBatch:
    """``batch_size`` sequences decode one token of each in every step, always at one length.

    Each step computes the token behind ``history_tokens`` others and takes the slot of the one
    of the step before: were the histories to grow, later steps would take longer and hide what
    saving adds. What the cache holds for the history does not matter, only how long it is.
    """

    def __init__(
        self, model: Model, *, batch_size: int, history_tokens: int, sink: StateSink
    ) -> None:
        self._model = model
        self._sink = sink
        token_count = history_tokens + 1
        self._cache = model.make_cache(batch_size * token_count)
        self._segments = [
            Segment(
                request_id=number,
                first_row=number,
                token_count=1,
                first_position=history_tokens,
                first_slot=number * token_count,
            )
            for number in range(batch_size)
        ]
        self._token_ids = [0] * batch_size
        for number in range(batch_size):
            sink.begin_request(number, [0] * history_tokens, 0)

    def step(self) -> float:
        """Decodes one token of each; the seconds that took."""
        started_s = time.perf_counter()
        logits = self._model.forward(
            self._token_ids,
            self._segments,
            cache=self._cache,
            sink=self._sink,
            logit_rows=range(len(self._segments)),
        )
        self._token_ids = logits.argmax(dim=-1).tolist()
        return time.perf_counter() - started_s

    def end(self) -> None:
        """Ends all sequences."""
        for segment in self._segments:
            self._sink.end_request(segment.request_id)
