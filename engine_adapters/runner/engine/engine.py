"""The step loop: admits requests, restores their history, computes, samples."""

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from engine_adapters.runner.engine.cache_cuts import make_due_cuts
from engine_adapters.runner.engine.conversing import Conversing
from engine_adapters.runner.engine.layer_follower import LayerFollower
from engine_adapters.runner.engine.linking import Linking
from engine_adapters.runner.engine.new_request import new_request
from engine_adapters.runner.engine.request import Completion, Request, TokenWatch, pending_ids
from engine_adapters.runner.engine.restoration import PIECE_TOKENS, Restoration, Restorer
from engine_adapters.runner.engine.sampling import Sampling
from engine_adapters.runner.engine.scheduler import Progress, SlotPool, plan_step
from engine_adapters.runner.engine.waiting_line import WaitingLine
from engine_adapters.runner.model.errors import StepError
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.step import NullSink, Segment, StateSink

LOGGER = logging.getLogger(__name__)

TOKEN_BUDGET = 512
"""Tokens of one step by default."""

REQUESTS_MAX = 64
"""Requests that run at the same time by default."""

ALONE_PIECE_TOKENS = 8 * PIECE_TOKENS
"""Tokens that restorations take between two steps where no other request is held up by it: more
than arrive in a step, and still little for a request that comes in the meantime."""

WAIT_S_MAX = 0.05
"""Longest wait for the store when there is nothing to compute: then all is looked at again."""

WAIT_S_SHARED = 0.005
"""The same where several restorations wait: only what arrives for one of them ends it."""


class Engine:
    """Continuous batching with chunked prefill. One thread only.

    The sum of all prompts and their new tokens that run together is bounded by
    ``cache_tokens``; requests wait in order of arrival until they fit.

    While a history is being restored the other requests go on. ``is_adaptive`` gives those
    that are being restored what all others leave of a step (Cake, section 4 part 3); without
    it prefills are computed in order of arrival, as for comparison. Where a history comes layer
    after layer, new tokens follow it as its gates open. Nobody waits at a gate while there is
    anything else to compute: they rest between two layers, and the next step goes on with them.

    A step that cannot be computed ends the requests that took part in it, and a restoration
    that fails ends its own: they give back their slots and what was on its way, and the engine
    goes on with the others.
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
        is_adaptive: bool = True,
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
        self._follower = LayerFollower(model, self._cache, self._sink)
        self._restorer = restorer
        self._is_adaptive = is_adaptive
        self._clock = clock
        self._ids = itertools.count()
        self._waiting = WaitingLine()
        self._running: dict[int, Request] = {}
        self._failed: list[Completion] = []

    @property
    def is_idle(self) -> bool:
        """True when no request waits or runs, and ``step`` has told of all that ended."""
        return not self._waiting and not self._running and not self._failed

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
        conversation: Conversing | None = None,
        link: Linking | None = None,
        watch: TokenWatch | None = None,
    ) -> int:
        """Queues a prompt of token ids and returns the request's id.

        ``stop_token_ids`` defaults to the model's own; an empty one never stops early. With a
        ``conversation`` the prompt is what follows it, and the first half of its history is
        dropped where the window has no room, before the turn and while it decodes. With a ``link``
        the prompt is all tokens of it, and nothing of the request is saved. A ``watch`` hears of
        each new token, and may end the request with it.
        Raises RequestError for what can never run: an empty prompt, an unknown token,
        more tokens than the model's positions or the cache.
        """
        request = new_request(
            next(self._ids),
            prompt,
            self._model.config,
            slot_count=self._pool.slot_count,
            new_tokens_max=new_tokens_max,
            sampling=sampling,
            stop_token_ids=stop_token_ids,
            conversation=conversation,
            link=link,
            watch=watch,
            now_s=self._clock(),
        )
        request.hold_link()
        self._waiting.append(request)
        return request.request_id

    def abort(self, request_id: int) -> bool:
        """Ends a request that nobody wants any more, without a completion; False if it is over.

        Its slots and what was on its way from the store are given back, and chunks that are
        complete by then stay saved. Between steps only.
        """
        waiting = self._waiting.remove(request_id)
        if waiting is not None:
            waiting.end_link()
            return True
        running = self._running.get(request_id)
        if running is None:
            return False
        self._end(running)
        return True

    def step(self, *, token_budget: int | None = None) -> list[Completion]:
        """Admits what fits, computes one step and returns the requests that it finished.

        Requests whose history is being restored take part with what the others leave of the
        step's tokens; while there is nothing but these and nothing has arrived, it waits for
        the store, but not for long. ``token_budget`` takes the place of the engine's for
        this step; with fewer tokens than requests run some of them wait. Those of a step that
        could not be computed are among what it returns, with an ``error``.
        """
        self._admit()
        self._waiting.tell()
        budget = self._token_budget if token_budget is None else token_budget
        segments = self._plan(budget)
        completions = self._compute(segments) if segments else []
        budget -= sum(part.token_count for part in segments)
        has_followed, followed = self._follow_layers(budget, is_alone=not segments)
        if not (segments or has_followed):
            self._wait()
        failed, self._failed = self._failed, []
        return failed + completions + followed

    def run(self) -> list[Completion]:
        """Steps until idle; completions in order of ending, those with an error included."""
        completions: list[Completion] = []
        while not self.is_idle:
            completions += self.step()
        return completions

    def _compute(self, segments: Sequence[Segment]) -> list[Completion]:
        """One forward pass; returns the requests that it finished."""
        parts = [(self._running[part.request_id], part.token_count) for part in segments]
        ready: list[tuple[Request, int]] = []
        for part, (request, token_count) in zip(segments, parts, strict=True):
            if part.stop_token == len(request.token_ids):
                ready.append((request, part.first_row + token_count - 1))
        try:
            restored = self._begin_restored(segments)
            logits = self._forward(segments, parts, restored, [row for _, row in ready])
        except Exception as error:
            LOGGER.exception("a step failed; its requests end, and the others go on")
            for request in dict.fromkeys(request for request, _ in parts):
                self._fail(request, error)
            self._sink.abandon_step()
            return []
        for request, token_count in parts:
            request.advance(token_count)
        return self._sample([request for request, _ in ready], logits)

    def _forward(
        self,
        segments: Sequence[Segment],
        parts: Sequence[tuple[Request, int]],
        restored: Sequence[tuple[Restoration, int]],
        logit_rows: Sequence[int],
    ) -> Tensor:
        """Logits of the step; tells restorations how long it took."""
        started_s = self._clock() if restored else 0.0
        logits = self._model.forward(
            pending_ids(segments, self._running),
            segments,
            cache=self._cache,
            sink=self._sink,
            logit_rows=logit_rows,
        )
        if restored:
            self._model.finish()
            duration_s = self._clock() - started_s
            step_tokens = sum(token_count for _, token_count in parts)
            for restoration, token_count in restored:
                restoration.end_step(token_count, duration_s, step_tokens=step_tokens)
        return logits

    def _admit(self) -> None:
        """Starts waiting requests in order of arrival while there is room."""
        while self._waiting and len(self._running) < self._requests_max:
            request = self._waiting.first
            slots = self._pool.reserve(request.ending.slot_count)
            if slots is None:
                return
            self._waiting.remove(request.request_id)
            request.slots = slots
            self._running[request.request_id] = request
            try:
                request.begin_restoring(self._restorer, self._cache)
            except Exception as error:
                self._fail(request, error, "a request could not begin")
                continue
            if request.restoration is None:
                request.announce(self._sink, 0)

    def _plan(self, token_budget: int) -> list[Segment]:
        """The next step: decodes, then prefills, then what is being restored, as it gets on."""
        for request in tuple(self._running.values()):
            self._make_cuts(request)
        running = self._running.values()
        restoring_count = sum(request.is_restoring for request in running)
        if not restoring_count:
            return plan_step([request.progress for request in running], token_budget=token_budget)
        left = token_budget
        are_alone = restoring_count == len(running)
        piece_tokens = (ALONE_PIECE_TOKENS if are_alone else PIECE_TOKENS) // restoring_count
        planned: list[Progress] = []
        for request in sorted(running, key=self._rank):
            progress = request.progress
            if request.is_restoring:
                try:
                    progress = self._advance(request, left, piece_tokens)
                except Exception as error:
                    self._fail(request, error, "restoring a request failed")
                    continue
            left -= min(left, progress.wanted_count)
            planned.append(progress)
        return plan_step(planned, token_budget=token_budget)

    def _make_cuts(self, request: Request) -> None:
        """Those that are due in a conversation; one that cannot be cut ends."""
        if request.cuts.conversation is not None and not request.is_restoring:
            try:
                make_due_cuts(request, self._model, self._cache)
            except Exception as error:
                self._fail(request, error)

    def _rank(self, request: Request) -> int:
        return replace(request.progress, is_restoring=self._is_last(request)).rank

    def _is_last(self, request: Request) -> bool:
        """Whether it can stand behind all others: what is only computed would starve there."""
        restoration = request.restoration
        if restoration is None or not request.is_restoring:
            return False
        return self._is_adaptive and restoration.state.is_loading

    def _advance(self, request: Request, token_budget: int, piece_tokens: int) -> Progress:
        """Lets a restoration get on, and ends it when it is over."""
        restoration = request.restoration
        assert restoration is not None
        step_tokens = restoration.advance(token_budget, piece_tokens=piece_tokens)
        state = restoration.state
        request.reach(state)
        if not state.is_over:
            return replace(
                request.progress,
                is_restoring=self._is_last(request),
                step_tokens_max=step_tokens,
            )
        report = restoration.close()
        request.end_restoring(report)
        if request.cuts.conversation is not None:
            request.cuts.load(request.cuts.conversation.loaded_cuts)
            make_due_cuts(request, self._model, self._cache)
        request.announce(self._sink, report.first_unstored)
        return request.progress

    def _begin_restored(self, segments: Sequence[Segment]) -> list[tuple[Restoration, int]]:
        """Tells restorations what the step computes of them, and the sink what it may save."""
        restored: list[tuple[Restoration, int]] = []
        for part in segments:
            request = self._running[part.request_id]
            if request.restoration is None or request.restore is not None:
                continue
            first_unstored = request.restoration.begin_step(part.token_count)
            if first_unstored < part.stop_position:
                request.announce(self._sink, first_unstored)
            restored.append((request.restoration, part.token_count))
        return restored

    def _follow_layers(self, token_budget: int, *, is_alone: bool) -> tuple[bool, list[Completion]]:
        """Computes new tokens in the layers that their histories have.

        The step has ``token_budget`` tokens left for that; a layer of a token counts as so much
        less of one. Returns whether anything was computed, and the requests that it finished.
        """
        completions: list[Completion] = []
        layer_tokens = token_budget * self._model.config.layer_count
        left = layer_tokens
        for request in list(self._running.values()):
            try:
                left -= self._follower.follow(request, max(0, left), is_alone=is_alone)
                logits = self._follower.finish(request)
            except Exception as error:
                LOGGER.exception("new tokens could not be computed; their request ends")
                self._fail(request, error)
                self._sink.abandon_step()
                continue
            if logits is not None:
                completions += self._sample([request], logits)
        return left < layer_tokens, completions

    def _wait(self) -> None:
        """Until something may have arrived for those that are being restored."""
        restorations = [
            request.restoration
            for request in self._running.values()
            if request.restoration is not None and request.is_restoring
        ]
        if restorations and all(each.state.is_waiting for each in restorations):
            restorations[0].wait(WAIT_S_MAX if len(restorations) == 1 else WAIT_S_SHARED)

    def _sample(self, ready: Sequence[Request], logits: Tensor) -> list[Completion]:
        completions: list[Completion] = []
        for request, row in zip(ready, logits, strict=True):
            try:
                token_id = request.sampler.choose(row)
            except Exception as error:
                LOGGER.exception("sampling failed; the request ends, and the others go on")
                self._fail(request, error)
                continue
            now_s = self._clock()
            if request.accept(token_id, now_s):
                self._end(request)
                completions.append(request.complete(now_s))
        return completions

    def _fail(self, request: Request, error: Exception, what: str = "") -> None:
        """Ends a request; the next thing that ``step`` returns tells of it. Logs ``what``."""
        if what:
            LOGGER.exception("%s; it ends, and the others go on", what)
        self._end(request)
        failure = StepError(f"request {request.request_id} ended early: {error}")
        failure.__cause__ = error
        self._failed.append(request.complete(self._clock(), error=failure))

    def _end(self, request: Request) -> None:
        """Takes a request out, and gives back what it holds."""
        del self._running[request.request_id]
        if request.restoration is not None and request.is_restoring:
            request.end_restoring(request.restoration.close())
            # What was launched may still write to its slots.
            self._model.finish()
        self._pool.release(request.slots)
        if request.is_announced:
            self._sink.end_request(request.request_id)
        request.end_link()
