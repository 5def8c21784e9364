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
    """``batch_size`` sequences behind a history of ``history_tokens`` decode ``steps`` tokens."""

    def __init__(
        self, model: Model, *, batch_size: int, history_tokens: int, steps: int, sink: StateSink
    ) -> None:
        self._engine = Engine(
            model,
            cache_tokens=batch_size * (history_tokens + steps),
            token_budget=batch_size,
            requests_max=batch_size,
            sink=sink,
            restorer=_PretendedHistory(),
        )
        for _ in range(batch_size):
            self._engine.add_request([0] * history_tokens, new_tokens_max=steps, stop_token_ids=())

    @property
    def is_over(self) -> bool:
        """Whether all tokens are decoded."""
        return self._engine.is_idle

    def step(self) -> float:
        """Decodes one token of each; the seconds that took."""
        started_s = time.perf_counter()
        self._engine.step()
        return time.perf_counter() - started_s
