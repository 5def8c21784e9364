"""One history that is computed from the front while it is loaded from the back (Cake)."""

import math
from collections.abc import Sequence

from engine_adapters.reading.span import Span
from engine_adapters.reading.span_reader import SpanReader
from engine_adapters.restore import (
    Action,
    CakePlan,
    ComputeCost,
    History,
    LoadCost,
    Pointers,
    Rates,
    TokenRange,
    plan_cake,
)
from engine_adapters.restore.source import SOURCE_OF
from engine_adapters.restore.stake import STAKE_SHARE
from engine_adapters.runner.engine.restoration import PIECE_TOKENS, RestorationState
from engine_adapters.runner.engine.restore_report import RestoreReport
from engine_adapters.runner.restore.awaited_chunks import AwaitedChunks, Patience
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.pointer_sample import PointerSample
from engine_adapters.runner.restore.restore_options import RestoreOptions
from engine_adapters.runner.restore.target import Target
from engine_adapters.runner.states.state_format import StateFormat

OPENING_SHARE = 1 / 16
"""Of all tokens: so many are computed at once while it is not known what is stored."""

WAIT_S_MAX = 0.005
"""Longest wait for one chunk: another one may arrive before it."""


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
        target: Target,
        rates: Rates,
        options: RestoreOptions,
        *,
        compute: ComputeCost,
        load: LoadCost,
    ) -> None:
        """``compute`` and ``load`` are what is expected at first, ``rates`` what was learned."""
        self._reader = reader
        self._format = state_format
        self._loader = loader
        self._target = target
        self._rates = rates
        self._compute = compute
        self._load = load
        self._observer = options.observer
        self._clock = clock = options.clock
        self._started_s = self._ended_s = clock()
        prompt_tokens = len(target.token_ids)
        alone_s = rates.compute_cost(compute).compute_s(0, prompt_tokens, _step_tokens(rates))
        self._patience = Patience(_opening_s(options, alone_s), clock)
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
        self._chunks = AwaitedChunks()
        self._loaded_from = prompt_tokens
        self._loaded_tokens = 0
        self._meeting_token: int | None = None
        self._is_over = False

    @property
    def state(self) -> RestorationState:
        """As ``Restoration``; what was taken and lies behind the meeting is not on its way."""
        return RestorationState(
            position=self._position,
            is_over=self._is_over,
            is_loading=not self._is_over and (self._plan is None or not self._chunks.are_over),
            is_waiting=self._patience.is_waiting,
        )

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
        # The pointers hear of what arrived before it is taken: how much may be taken, and how
        # long that takes, says nothing about the reader.
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

    def _first_unstored(self) -> int:
        chunk_tokens = self._history.chunk_tokens
        chunk = -(-self._position // chunk_tokens)
        while chunk < self._history.chunk_count and (
            self._history.is_stored[chunk] and not self._chunks.is_lost(chunk)
        ):
            chunk += 1
        return chunk * chunk_tokens

    def begin_step(self, token_count: int) -> int:
        """As ``Restoration``; publishes the compute pointer."""
        if self._pointers is not None:
            self._pointers.begin_step(token_count)
            self._publish()
        return self._first_unstored()

    def end_step(self, token_count: int, duration_s: float, *, step_tokens: int) -> None:
        """As ``Restoration``; what the step took says how long the next ones will."""
        others_count = step_tokens - token_count
        if self._pointers is not None:
            self._pointers.end_step(token_count, duration_s, others_count=others_count)
            return
        tokens = TokenRange(self._opened_at, self._opened_at + token_count)
        self._rates.measure_step(self._compute, tokens, duration_s, others_count=others_count)
        self._opened_at = tokens.stop

    def wait(self, timeout_s: float) -> None:
        """As ``Restoration``."""
        for span in self._reader.spans:
            chunk = self._chunks.last_of(span)
            if chunk is not None:
                span.wait(chunk - span.first_chunk, timeout_s=min(timeout_s, WAIT_S_MAX))
                return
        self._reader.wait_news(min(timeout_s, WAIT_S_MAX))

    def close(self) -> RestoreReport:
        """As ``Restoration``."""
        self._reader.close()
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
            first_unstored=self._first_unstored(),
        )

    @property
    def _position(self) -> int:
        return self._opened_at if self._pointers is None else self._pointers.position

    @property
    def _prompt_tokens(self) -> int:
        return len(self._target.token_ids)

    def _open(self, now_s: float) -> bool:
        """Plans when it is known what is stored; False while that is not."""
        is_ended = self._reader.is_ended
        stored = self._reader.stored
        if stored is None:
            if is_ended:
                self._finish()
            return False
        self._history = History(
            prompt_tokens=self._prompt_tokens,
            chunk_tokens=self._history.chunk_tokens,
            is_stored=stored.is_stored,
        )
        rates = self._rates
        self._plan = plan_cake(
            self._history,
            rates.compute_cost(self._compute),
            {SOURCE_OF[self._format.layout.layers[0].kind]: rates.load_cost(self._load)},
            token_budget=_step_tokens(rates),
        )
        if self._plan.load is None and any(stored.is_stored):
            rates.ease()
        self._pointers = Pointers(
            self._history,
            self._plan,
            self._compute,
            rates=rates,
            now_s=now_s,
            position=self._opened_at,
        )
        self._chunks = AwaitedChunks(chunk for run in self._plan.load_order for chunk in run)
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
        spans, arrived, lost = self._chunks.look(self._reader)
        pointers.observe(now_s, arrived=arrived, lost=lost)
        return spans

    def _take(self, spans: Sequence[Span], piece_tokens: int) -> set[int]:
        """Takes chunks that have arrived into the cache; gives back spans of which none is left."""
        taken: set[int] = set()
        room = max(1, piece_tokens // self._history.chunk_tokens)
        for span in spans:
            taken |= self._take_of(span, room - len(taken))
            if self._chunks.last_of(span) is None:
                self._reader.give_back(span)
        return taken

    def _take_of(self, span: Span, room: int) -> set[int]:
        """The chunks of one span that were taken, at most ``room``, the last ones first."""
        arrived = self._chunks.arrived_of(span)
        taken = arrived[max(0, len(arrived) - room) :]
        started_s = self._clock()
        for run in _runs([chunk - span.first_chunk for chunk in taken]):
            for layer in range(self._format.layout.layer_count):
                self._loader.load_pieces(span, layer, run, self._target)
        if taken:
            self._loaded_from = taken[0] * self._history.chunk_tokens
            self._measure_taking(len(taken), self._clock() - started_s)
        self._chunks.take(taken)
        return set(taken)

    def _measure_taking(self, chunk_count: int, duration_s: float) -> None:
        """On a GPU the work has only been launched: there its cost shows in the steps."""
        if self._target.cache.keys.device.type == "cpu":
            tokens = chunk_count * self._history.chunk_tokens
            self._rates.project_s.add(duration_s, units=tokens)

    def _publish(self) -> None:
        """Puts the compute pointer on the boards; overtaken chunks are awaited no more."""
        assert self._pointers is not None
        reached = self._pointers.reached_chunks
        self._reader.reach(reached)
        self._chunks.reach(reached)

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
                computed_to=self._position,
                loaded_from=self._loaded_from,
            )
        )


def _step_tokens(rates: Rates) -> float:
    """Tokens that a step may have of the request."""
    return max(1.0, rates.step_tokens.value)


def _runs(chunks: Sequence[int]) -> list[range]:
    """Ascending numbers as longest runs of consecutive ones."""
    result: list[range] = []
    for chunk in chunks:
        if result and result[-1].stop == chunk:
            result[-1] = range(result[-1].start, chunk + 1)
        else:
            result.append(range(chunk, chunk + 1))
    return result


def _opening_s(options: RestoreOptions, alone_s: float) -> float:
    """How long to wait for what is stored: no more than a slow store may cost."""
    return min(options.opening_s_max, max(options.least_wait_s, STAKE_SHARE * alone_s))
