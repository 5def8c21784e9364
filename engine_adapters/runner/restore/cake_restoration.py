"""One history that is computed from the front while it is loaded from the back (Cake)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import (
    Action,
    CakePlan,
    History,
    Pointers,
    TokenRange,
    plan_cake,
)
from engine_adapters.runner.engine.restoration import PIECE_TOKENS
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.restore.cake_costs import CakeCosts
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.patience import Patience
from engine_adapters.runner.states.state_format import StateFormat
from kvstored_client import SliceState

OPENING_SHARE = 1 / 16
"""Of computing everything: so long a request waits to hear what is stored before it computes, and
so many of its tokens it computes then at once."""

WAIT_S_MAX = 0.005
"""Longest wait for one chunk: another one may arrive before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerSample:
    """Both pointers of one restoration at one time, for plots and tests.

    ``computed_to`` is the compute pointer in tokens, ``loaded_from`` the first token of the
    chunk that was taken into the cache last (the prompt's end before the first).
    """

    now_s: float
    action: Action
    computed_to: int
    loaded_from: int


class CakeRestoration:
    """The planner of ``engine_adapters.restore`` between an engine and a reader.

    After every step ``Pointers`` says what to do next. Both pointers meet on the board: the
    reader's progress is looked at there, and the engine's is published there before each
    step, so that the daemon reads nothing that was overtaken (Cake, section 4).

    Chunks that arrive go into the cache ahead of the compute pointer, where attention looks
    only once the pointer has jumped over them; what is computed in spite of it overwrites
    them with the same states.
    """

    def __init__(
        self,
        reader: SpanReader,
        state_format: StateFormat,
        loader: LayerLoader,
        costs: CakeCosts,
        *,
        prompt_tokens: int,
        cache: KvCache,
        first_slot: int,
        opening_s_max: float,
        clock: Callable[[], float],
        observer: Callable[[PointerSample], None],
    ) -> None:
        self._reader = reader
        self._format = state_format
        self._loader = loader
        self._costs = costs
        self._prompt_tokens = prompt_tokens
        self._cache = cache
        self._first_slot = first_slot
        self._clock = clock
        self._observer = observer
        self._started_s = self._ended_s = clock()
        self._patience = Patience(opening_s_max, clock)
        """Adds up the time in which nothing can be computed because nothing has arrived.

        It limits the wait until it is known what is stored; later ones the planner limits.
        """
        self._opened_at = 0
        """Tokens that were computed before that was known."""
        self._patience.begin_wait()
        self._history = History(
            prompt_tokens=prompt_tokens,
            chunk_tokens=state_format.layout.chunk_tokens,
            is_stored=(),
        )
        self._plan: CakePlan | None = None
        self._pointers: Pointers | None = None
        self._awaited: set[int] = set()
        """Chunks of the plan that are neither taken nor lost."""
        self._arrived: set[int] = set()
        """Those of them that wait in the arena to be taken."""
        self._lost: set[int] = set()
        self._loaded_from = prompt_tokens
        self._loaded_tokens = 0
        self._meeting_token: int | None = None
        self._is_over = False

    @property
    def position(self) -> int:
        """As ``Restoration``."""
        return self._opened_at if self._pointers is None else self._pointers.position

    @property
    def is_over(self) -> bool:
        """As ``Restoration``."""
        return self._is_over

    @property
    def is_loading(self) -> bool:
        """As ``Restoration``; what was taken and lies behind the meeting is not on its way."""
        return not self._is_over and (self._plan is None or bool(self._awaited))

    @property
    def is_waiting(self) -> bool:
        """As ``Restoration``."""
        return self._patience.is_waiting

    @property
    def plan(self) -> CakePlan | None:
        """What was planned; None while it is not known what is stored."""
        return self._plan

    def advance(self, token_budget: int, *, piece_tokens: int = PIECE_TOKENS) -> int:
        """As ``Restoration`` (Cake, section 4 and appendix A)."""
        now_s = self._clock()
        if self._pointers is None:
            if not self._open(now_s):
                return self._unopened_tokens(token_budget)
            assert self._pointers is not None
        pointers = self._pointers
        # What arrived is told before it is taken: how much may be taken, and how long that
        # takes, says nothing about the reader.
        spans = self._look(pointers, now_s)
        if taken := self._take(spans, piece_tokens):
            pointers.take(taken)
            # Taking may have lasted: what came meanwhile came then, not in the step that follows.
            self._look(pointers, self._clock())
        while pointers.is_loading:
            decision = pointers.decide(token_budget)
            self._sample(decision.action)
            if decision.action is not Action.JUMP:
                if decision.action is Action.WAIT and token_budget > 0:
                    self._patience.begin_wait()
                else:
                    self._patience.end_wait()
                return decision.tokens.token_count
            if self._meeting_token is None:
                self._meeting_token = decision.tokens.first
            pointers.jump(decision.tokens.token_count)
            self._loaded_tokens += decision.tokens.token_count
            self._publish()
        self._finish()
        return 0

    def first_unstored(self) -> int:
        """As ``Restoration``."""
        chunk_tokens = self._history.chunk_tokens
        chunk = -(-self.position // chunk_tokens)
        while chunk < self._history.chunk_count and (
            self._history.is_stored[chunk] and chunk not in self._lost
        ):
            chunk += 1
        return chunk * chunk_tokens

    def begin_step(self, token_count: int) -> None:
        """As ``Restoration``; publishes the compute pointer."""
        if self._pointers is not None:
            self._pointers.begin_step(token_count)
            self._publish()

    def end_step(self, token_count: int, duration_s: float, *, step_tokens: int) -> None:
        """As ``Restoration``; what the step took says how long the next ones will."""
        others_count = step_tokens - token_count
        if self._pointers is not None:
            self._pointers.end_step(token_count, duration_s, others_count=others_count)
            return
        tokens = TokenRange(self._opened_at, self._opened_at + token_count)
        self._costs.rates.measure_step(
            self._costs.compute, tokens, duration_s, others_count=others_count
        )
        self._opened_at = tokens.stop

    def wait(self, timeout_s: float) -> None:
        """As ``Restoration``."""
        for span in self._reader.spans:
            chunk = self._last_awaited(span)
            if chunk is not None:
                span.wait(chunk - span.first_chunk, timeout_s=min(timeout_s, WAIT_S_MAX))
                return
        self._reader.wait_news(min(timeout_s, WAIT_S_MAX))

    def report(self) -> RestoreReport:
        """As ``Restoration``."""
        device_bytes, dram_bytes = self._reader.read_bytes()
        ended_s = self._ended_s if self._is_over else self._clock()
        return RestoreReport(
            restored_tokens=self._loaded_tokens,
            device_bytes=device_bytes,
            dram_bytes=dram_bytes,
            duration_s=ended_s - self._started_s,
            waited_s=self._patience.waited_s,
            meeting_token=self._meeting_token,
            decode_s=self._reader.decode_s(),
        )

    def close(self) -> None:
        """As ``Restoration``."""
        self._reader.close()

    def _open(self, now_s: float) -> bool:
        """Plans when it is known what is stored; False while that is not."""
        is_ended = self._reader.is_ended
        is_stored = self._reader.is_stored
        if is_stored is None:
            if is_ended:
                self._finish()
            return False
        self._history = History(
            prompt_tokens=self._prompt_tokens,
            chunk_tokens=self._history.chunk_tokens,
            is_stored=is_stored,
        )
        costs = self._costs
        rates = costs.rates
        self._plan = plan_cake(
            self._history,
            rates.compute_cost(costs.compute),
            {costs.source: costs.load_now()},
            token_budget=costs.step_tokens,
        )
        if self._plan.load is None and any(is_stored):
            rates.ease()
        self._pointers = Pointers(
            self._history,
            self._plan,
            costs.compute,
            rates=rates,
            now_s=now_s,
            position=self._opened_at,
        )
        self._awaited = {chunk for run in self._plan.load_order for chunk in run}
        self._reader.load(self._plan.load_order)
        return True

    def _unopened_tokens(self, token_budget: int) -> int:
        """What to compute while it is not known what is stored: nothing, until that takes long.

        Whatever is stored, the first tokens are the last that loading would bring.
        """
        if self._is_over or self._patience.remaining_s():
            return 0
        self._patience.end_wait()
        wanted = max(self._history.chunk_tokens, math.ceil(OPENING_SHARE * self._prompt_tokens))
        if self._opened_at + wanted >= self._prompt_tokens:
            self._finish()
            return 0
        return min(wanted, token_budget)

    def _look(self, pointers: Pointers, now_s: float) -> tuple[Span, ...]:
        """Tells the planner what has arrived since the last look, and what never will.

        Returns the spans that it looked at.
        """
        # In this order: what it has handed over before it ended is among the spans.
        is_ended = self._reader.is_ended
        spans = self._reader.spans
        arrived: set[int] = set()
        lost: set[int] = set()
        in_spans: set[int] = set()
        for span in spans:
            awaited = self._awaited.intersection(_chunks_of(span))
            in_spans |= awaited
            # A lost session brings nothing more. It may be lost behind this look all the same:
            # each session has memory of its own, so nobody overwrites what lies here.
            if not span.is_current:
                lost |= awaited
                continue
            for chunk in awaited - self._arrived:
                state = span.state(chunk - span.first_chunk)
                if state is SliceState.RESIDENT:
                    arrived.add(chunk)
                elif state is not SliceState.PENDING:
                    lost.add(chunk)
        if is_ended:
            lost |= self._awaited - in_spans
        pointers.observe(now_s, arrived=arrived, lost=lost)
        self._lost |= lost
        self._awaited -= lost
        self._arrived = (self._arrived | arrived) - lost
        return spans

    def _take(self, spans: Sequence[Span], piece_tokens: int) -> set[int]:
        """Takes chunks that have arrived into the cache; gives back spans of which none is left."""
        taken: set[int] = set()
        room = max(1, piece_tokens // self._history.chunk_tokens)
        for span in spans:
            taken |= self._take_of(span, room - len(taken))
            if self._awaited.isdisjoint(_chunks_of(span)):
                self._reader.give_back(span)
        return taken

    def _take_of(self, span: Span, room: int) -> set[int]:
        """The chunks of one span that were taken, at most ``room``, the last ones first."""
        arrived = sorted(self._arrived.intersection(_chunks_of(span)))
        taken = arrived[max(0, len(arrived) - room) :]
        started_s = self._clock()
        for run in _runs(taken):
            first_token = run.start * self._history.chunk_tokens
            for layer in range(self._format.layout.layer_count):
                states = span.states(layer, len(run), first_chunk=run.start - span.first_chunk)
                self._loader.load(
                    layer,
                    states,
                    cache=self._cache,
                    first_slot=self._first_slot + first_token,
                    first_position=first_token,
                )
        if taken:
            self._loaded_from = taken[0] * self._history.chunk_tokens
            self._measure_taking(len(taken), self._clock() - started_s)
        self._awaited.difference_update(taken)
        self._arrived.difference_update(taken)
        return set(taken)

    def _measure_taking(self, chunk_count: int, duration_s: float) -> None:
        """On a GPU the work has only been launched: there its cost shows in the steps."""
        if self._cache.keys.device.type == "cpu":
            tokens = chunk_count * self._history.chunk_tokens
            self._costs.rates.project_s.add(duration_s, units=tokens)

    def _publish(self) -> None:
        """Puts the compute pointer on the boards; overtaken chunks are awaited no more."""
        assert self._pointers is not None
        reached = self._pointers.reached_chunks
        self._reader.reach(reached)
        self._awaited = {chunk for chunk in self._awaited if chunk >= reached}
        self._arrived &= self._awaited

    def _last_awaited(self, span: Span) -> int | None:
        return max(self._awaited.intersection(_chunks_of(span)), default=None)

    def _finish(self) -> None:
        self._patience.end_wait()
        self._loader.finish()
        self._ended_s = self._clock()
        self._is_over = True

    def _sample(self, action: Action) -> None:
        self._observer(
            PointerSample(
                now_s=self._clock(),
                action=action,
                computed_to=self.position,
                loaded_from=self._loaded_from,
            )
        )


def _chunks_of(span: Span) -> range:
    """Those of the history that a span brings."""
    return range(span.first_chunk, span.first_chunk + span.chunk_count)


def _runs(chunks: Sequence[int]) -> list[range]:
    """Ascending numbers as longest runs of consecutive ones."""
    result: list[range] = []
    for chunk in chunks:
        if result and result[-1].stop == chunk:
            result[-1] = range(result[-1].start, chunk + 1)
        else:
            result.append(range(chunk, chunk + 1))
    return result
