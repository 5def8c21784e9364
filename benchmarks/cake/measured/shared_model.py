"""A model that others use in the same steps, and that keeps a record of its steps."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.model_config import ModelConfig
from engine_adapters.runner.model.model_weights import ModelWeights
from engine_adapters.runner.model.step import NullSink, Segment, StateSink

_OTHERS_ID = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One forward pass; times are those of ``time.perf_counter``.

    ``token_count`` are the engine's tokens, without those of others; ``stop_position`` is
    where the longest sequence in it ends.
    """

    started_s: float
    ended_s: float
    token_count: int
    stop_position: int

    @property
    def duration_s(self) -> float:
        """Seconds."""
        return self.ended_s - self.started_s


class SharedModel(Model):
    """Computes ``others_tokens`` of somebody else in every step, until the first token is out.

    That is how a share of the token budget becomes a share of the machine (Cake, section 5.1):
    the others' tokens are really computed, behind a history as long as that of the engine's
    own tokens, in a cache of their own. One thread only.
    """

    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        super().__init__(config, weights)
        self.others_tokens = 0
        self.has_answered = False
        """Whether a token was generated: others are left out from then on."""
        self.steps: list[StepRecord] = []
        self._others_cache: KvCache | None = None

    def begin(self, *, others_tokens: int = 0, others_stop_max: int = 0) -> None:
        """Forgets the steps so far; from here on others have so many tokens in each step.

        No token of theirs will lie behind ``others_stop_max``.
        """
        self.steps = []
        self.others_tokens = others_tokens
        self.has_answered = False
        cache = self._others_cache
        if cache is None or cache.keys.shape[1] < others_stop_max:
            self._others_cache = self.make_cache(others_stop_max)

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
        """As of any model, beside the others' tokens."""
        started_s = time.perf_counter()
        self.compute_others(segments[-1].first_position)
        logits = super().forward(
            token_ids,
            segments,
            cache=cache,
            sink=sink,
            logit_rows=logit_rows,
            layer_stop=layer_stop,
        )
        self.steps.append(
            StepRecord(
                started_s=started_s,
                ended_s=time.perf_counter(),
                token_count=len(token_ids),
                stop_position=max(part.stop_position for part in segments),
            )
        )
        self.has_answered |= bool(logit_rows)
        return logits

    def compute_others(self, history_tokens: int) -> None:
        """The others' part of a step."""
        count = self.others_tokens
        if not count or self.has_answered:
            return
        assert self._others_cache is not None
        segment = Segment(
            request_id=_OTHERS_ID,
            first_row=0,
            token_count=count,
            first_position=history_tokens,
            first_slot=0,
        )
        super().forward(
            [0] * count, [segment], cache=self._others_cache, sink=NullSink(), logit_rows=()
        )
