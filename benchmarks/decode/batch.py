"""A batch of sequences that decode, one token of each in every step."""

import time
from collections.abc import Sequence

from engine_adapters.runner.engine import Engine
from engine_adapters.runner.kv_cache import KvCache
from engine_adapters.runner.model import Model
from engine_adapters.runner.restoration import RestoredHistory
from engine_adapters.runner.step import StateSink


class _PretendedHistory:
    """A restorer that takes whatever the cache holds for the history: only its length counts."""

    def begin(
        self,
        token_ids: Sequence[int],
        *,
        cache: KvCache,  # noqa: ARG002 - as it is
        first_slot: int,  # noqa: ARG002
    ) -> RestoredHistory:
        return RestoredHistory(len(token_ids) - 1)


class DecodingBatch:
    """``batch_size`` sequences behind a history of ``history_tokens`` each."""

    def __init__(
        self,
        model: Model,
        *,
        batch_size: int,
        history_tokens: int,
        steps_max: int,
        sink: StateSink,
    ) -> None:
        self._batch_size = batch_size
        self._prompt = [0] * history_tokens
        self._engine = Engine(
            model,
            cache_tokens=batch_size * (history_tokens + steps_max),
            token_budget=batch_size,
            requests_max=batch_size,
            sink=sink,
            restorer=_PretendedHistory(),
        )

    def decode(self, steps: int) -> list[float]:
        """Lets new sequences decode so many tokens each; the seconds of every step."""
        for _ in range(self._batch_size):
            self._engine.add_request(self._prompt, new_tokens_max=steps, stop_token_ids=())
        durations_s = []
        while not self._engine.is_idle:
            started_s = time.perf_counter()
            self._engine.step()
            durations_s.append(time.perf_counter() - started_s)
        return durations_s
