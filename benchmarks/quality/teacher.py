"""A model that knows what will be said: it notes how likely it was, and has it said."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.model_config import ModelConfig
from engine_adapters.runner.model.model_weights import ModelWeights
from engine_adapters.runner.model.step import Segment, StateSink


class TeacherModel(Model):
    """As ``Model``, for one conversation of an engine at a time. One thread only.

    An engine that samples greedily says what the ``script`` says, tokens of prompts and answers,
    and past its end what the model says.
    """

    def __init__(self, config: ModelConfig, weights: ModelWeights) -> None:
        super().__init__(config, weights)
        self._script: list[int] = []
        self._losses = torch.empty(0)

    def teach(self, script: Sequence[int]) -> None:
        """Begins a conversation."""
        self._script = list(script)
        self._losses = torch.full((len(script),), torch.nan)

    @property
    def losses(self) -> Tensor:
        """[tokens of the script], float32, nats: how unlikely the model found each of them.

        NaN where it did not compute the token before.
        """
        return self._losses

    @torch.inference_mode()
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
        """As of ``Model``, for all layers of one segment."""
        (segment,) = segments
        assert layer_stop is None
        logits = super().forward(
            token_ids, segments, cache=cache, sink=sink, logit_rows=range(len(token_ids))
        )
        # Of the token that each row says.
        first = segment.stop_token - segment.token_count + 1
        said = torch.tensor(self._script[first : first + len(token_ids)], dtype=torch.int64)
        count = len(said)
        self._losses[first : first + count] = cross_entropy(logits[:count], said, reduction="none")
        logits[range(count), said] = torch.inf
        return logits[list(logit_rows)]
