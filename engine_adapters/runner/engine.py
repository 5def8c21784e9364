"""The step loop: admits requests, restores their history, computes, samples."""

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor

from engine_adapters.runner.errors import RequestError
from engine_adapters.runner.kv_cache import KvCache
from engine_adapters.runner.model import Model
from engine_adapters.runner.request import Completion, Request, RestoreReport, pending_ids
from engine_adapters.runner.sampling import Sampler, Sampling
from engine_adapters.runner.scheduler import plan_step
from engine_adapters.runner.slot_pool import SlotPool
from engine_adapters.runner.step import NullSink, Segment, StateSink

TOKEN_BUDGET = 512
"""Tokens of one step unless the engine is told otherwise."""

REQUESTS_MAX = 64
"""Requests that run at the same time unless the engine is told otherwise."""


class Restorer(Protocol):
    """Brings the states of a history into the cache."""

    def restore(
        self, token_ids: Sequence[int], *, cache: KvCache, first_slot: int
    ) -> RestoreReport:
        """Fills the slots of leading tokens, never the last one; raises nothing."""


class Engine:
    """Continuous batching with chunked prefill. One thread only.

    The sum of all prompts and their new tokens that run together is bounded by
    ``cache_tokens``; requests wait in order of arrival until they fit.
    """

    def __init__(
        self,
        model: Model,
        *,
        cache_tokens: int,
        token_budget: int = TOKEN_BUDGET,
        requests_max: int = REQUESTS_MAX,
        sink: StateSink | None = None,
        restorer: Restorer | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if not 1 <= requests_max <= token_budget:
            raise ValueError(
                f"requests_max must be 1 to token_budget ({token_budget}), not {requests_max}"
            )
        self._model = model
        self._cache = model.make_cache(cache_tokens)
        self._pool = SlotPool(cache_tokens)
        self._token_budget = token_budget
        self._requests_max = requests_max
        self._sink: StateSink = NullSink() if sink is None else sink
        self._restorer = restorer
        self._clock = clock
        self._ids = itertools.count()
        self._waiting: deque[Request] = deque()
        self._running: dict[int, Request] = {}

    @property
    def is_idle(self) -> bool:
        """True when no request waits or runs."""
        return not self._waiting and not self._running

    def warm_up(self) -> None:
        """Runs a throw-away step, so that no request pays for the libraries' first call."""
        slots = self._pool.reserve(min(16, self._pool.free_count))
        if slots is None:
            raise RuntimeError("warm_up needs free slots: call it before the first request")
        segment = Segment(
            request_id=-1,
            first_row=0,
            token_count=slots.count,
            first_position=0,
            first_slot=slots.first,
        )
        self._model.forward(
            [0] * slots.count, [segment], cache=self._cache, sink=NullSink(), logit_rows=[0]
        )
        self._pool.release(slots)

    def add_request(
        self,
        prompt: Sequence[int],
        *,
        new_tokens_max: int,
        sampling: Sampling | None = None,
        stop_token_ids: Sequence[int] | None = None,
    ) -> int:
        """Queues a prompt of token ids and returns the request's id.

        ``stop_token_ids`` defaults to the model's own; an empty one never stops early.
        Raises RequestError for what can never run: an empty prompt, an unknown token,
        more tokens than the model's positions or the cache.
        """
        self._check(prompt, new_tokens_max)
        stops = self._model.config.stop_token_ids if stop_token_ids is None else stop_token_ids
        request = Request(
            request_id=next(self._ids),
            prompt_tokens=len(prompt),
            token_ids=list(prompt),
            sampler=Sampler(sampling or Sampling()),
            stop_token_ids=frozenset(stops),
            new_tokens_max=new_tokens_max,
            added_at_s=self._clock(),
        )
        self._waiting.append(request)
        return request.request_id

    def step(self) -> list[Completion]:
        """Admits what fits, computes one step and returns the requests that it finished."""
        self._admit()
        if not self._running:
            return []
        segments = plan_step(
            [request.progress for request in self._running.values()],
            token_budget=self._token_budget,
        )
        parts = [(self._running[part.request_id], part.token_count) for part in segments]
        token_ids = pending_ids(parts)
        ready: list[tuple[Request, int]] = []
        for part, (request, token_count) in zip(segments, parts, strict=True):
            if part.stop_position == len(request.token_ids):
                ready.append((request, part.first_row + token_count - 1))
        logits = self._model.forward(
            token_ids,
            segments,
            cache=self._cache,
            sink=self._sink,
            logit_rows=[row for _, row in ready],
        )
        for request, token_count in parts:
            request.computed_count += token_count
        return self._sample([request for request, _ in ready], logits)

    def run(self) -> list[Completion]:
        """Steps until idle; completions in order of finishing."""
        completions: list[Completion] = []
        while not self.is_idle:
            completions.extend(self.step())
        return completions

    def _check(self, prompt: Sequence[int], new_tokens_max: int) -> None:
        config = self._model.config
        if not prompt or new_tokens_max < 1:
            raise RequestError("a request needs at least one prompt token and one new token")
        if not all(0 <= token_id < config.vocab_size for token_id in prompt):
            raise RequestError(f"every token id must be 0 to {config.vocab_size - 1}")
        limits = (
            ("the model's positions", config.position_count),
            ("the cache's tokens", self._pool.slot_count),
        )
        for name, limit in limits:
            if len(prompt) + new_tokens_max > limit:
                raise RequestError(
                    f"{len(prompt)} prompt tokens and {new_tokens_max} new ones "
                    f"exceed {name} ({limit})"
                )

    def _admit(self) -> None:
        """Starts waiting requests in order of arrival while there is room."""
        while self._waiting and len(self._running) < self._requests_max:
            request = self._waiting[0]
            slots = self._pool.reserve(request.token_count_max)
            if slots is None:
                return
            self._waiting.popleft()
            request.slots = slots
            if self._restorer is not None:
                request.restore = self._restorer.restore(
                    request.token_ids, cache=self._cache, first_slot=slots.first
                )
            request.computed_count = request.restore.restored_tokens
            self._running[request.request_id] = request
            self._sink.begin_request(request.request_id, request.token_ids, request.computed_count)

    def _sample(self, ready: Sequence[Request], logits: Tensor) -> list[Completion]:
        completions: list[Completion] = []
        for request, row in zip(ready, logits, strict=True):
            token_id = request.sampler.choose(row)
            now_s = self._clock()
            if request.accept(token_id, now_s):
                self._sink.end_request(request.request_id)
                del self._running[request.request_id]
                self._pool.release(request.slots)
                completions.append(request.complete(now_s))
        return completions
