"""The two pointers of one restoration while it runs (Cake, section 4 and appendix A).

Computing goes from the first token forward, loading through ``load_order``, until all tokens
have their states. After every step ``decide`` looks where both would meet, from how fast they
were lately, so that neither begins what the other ends sooner: the last step before the meeting
is shorter, and the reader stops at the chunk that this step computes. Where one side cannot
help, the other works alone.
"""

from collections.abc import Collection, Iterable, Sequence

from engine_adapters.restore.arrivals import Arrivals
from engine_adapters.restore.cake import CakePlan
from engine_adapters.restore.chunk_costs import ComputeCost
from engine_adapters.restore.decision import Action, Decision
from engine_adapters.restore.meeting import compute_stop
from engine_adapters.restore.ranges import History, TokenRange
from engine_adapters.restore.rates import Rates


class Pointers:
    """Progress of one request. Times are seconds of any one clock. Not thread-safe.

    Invariant: every token below ``position`` has its states in the engine's cache, computed
    or jumped over, each exactly once.
    """

    def __init__(
        self,
        history: History,
        plan: CakePlan,
        compute: ComputeCost,
        *,
        rates: Rates,
        now_s: float,
        position: int = 0,
    ) -> None:
        """The tokens before ``position`` were computed before the plan was made."""
        self._history = history
        self._compute = compute
        self._rates = rates
        self._arrivals = Arrivals(
            [chunk for chunks in plan.load_order for chunk in reversed(chunks)],
            rates,
            latency_s=plan.load.latency_s if plan.load else 0.0,
            now_s=now_s,
        )
        self._position = position
        self._reached_chunks = 0
        self._reach(position)

    @property
    def position(self) -> int:
        """Tokens whose states are in the cache, from the first on."""
        return self._position

    @property
    def reached_chunks(self) -> int:
        """Leading chunks that are computed, jumped over, or wholly in the step that runs.

        The engine publishes this on the board: the reader begins none of them any more.
        Never falls.
        """
        return self._reached_chunks

    @property
    def is_loading(self) -> bool:
        """Whether chunks that are still needed are loaded or on their way."""
        return bool(self._loadable())

    def observe(
        self, now_s: float, *, arrived: Collection[int] = (), lost: Collection[int] = ()
    ) -> None:
        """Chunks that arrived since the last call, and those that never will.

        What has arrived tells how fast the reader is, whether there is time to take it or not.
        """
        self._arrivals.observe(now_s, arrived, lost)

    def take(self, chunks: Iterable[int]) -> None:
        """These have arrived and are in the cache now: they may be jumped over."""
        self._arrivals.take(chunks)

    def decide(self, token_budget: int) -> Decision:
        """What to do in the next step, in which this request may have ``token_budget`` tokens."""
        if token_budget:
            # A step that others fill says nothing of those that leave something.
            self._rates.step_tokens.add(token_budget)
        if self._position == self._history.prompt_tokens:
            return self._decision(Action.DONE, self._position)
        loadable = self._loadable()
        jump_stop = self._jump_stop()
        stop = compute_stop(
            self._history,
            self._position,
            loadable,
            compute_s=self._compute_s,
            wait_s=self._arrivals.wait_s,
            project_s=self._rates.project_s.value * self._history.chunk_tokens,
            doubt=self._rates.doubt,
        )
        can_jump = jump_stop > self._position
        if can_jump and (
            stop == self._position or jump_stop < self._history.chunk_first(loadable[0].stop)
        ):
            return self._decision(Action.JUMP, jump_stop)
        stop = self._safe_stop(min(stop, self._position + token_budget), loadable)
        return self._decision(Action.COMPUTE if stop > self._position else Action.WAIT, stop)

    def jump(self, token_count: int) -> None:
        """The states of the next ``token_count`` tokens are in the cache: they were loaded."""
        self._position += token_count
        self._reach(self._position)

    def begin_step(self, token_count: int) -> None:
        """A step computes the next ``token_count`` tokens."""
        self._reach(self._position + token_count)

    def end_step(self, token_count: int, duration_s: float, *, others_count: int = 0) -> None:
        """The step is over; it computed that many tokens of this request, at least one.

        ``others_count`` tokens of other requests took part.
        """
        tokens = TokenRange(self._position, self._position + token_count)
        self._position = tokens.stop
        self._rates.measure_step(self._compute, tokens, duration_s, others_count=others_count)

    def _safe_stop(self, stop: int, loadable: Sequence[range]) -> int:
        """``stop``, or the end of a chunk before it, from which loading alone would be no sooner.

        A step cannot be cut once it runs. If it takes as long as the worst that was seen, or
        chunks come as fast, all that is ahead may have been loaded before it ends: so it is only
        as long as loading alone is expected to take even then, but for the first chunk's tokens.
        Where loading alone does not help, because something ahead has to be computed, no step
        is too long.
        """
        chunk_tokens = self._history.chunk_tokens
        chunk = self._position // chunk_tokens
        if not loadable or loadable[0].start > chunk:
            return stop
        project_s = self._rates.project_s.value * chunk_tokens
        loaded_s = max(
            self._arrivals.wait_s(chunk) + project_s, self._arrivals.count_to(chunk) * project_s
        )
        loaded_stop = self._history.chunk_first(loadable[0].stop)
        doubt = self._rates.doubt
        while (earlier := (stop - 1) // chunk_tokens * chunk_tokens) > self._position:
            load_alone_s = loaded_s + self._compute_s(min(stop, loaded_stop), stop)
            if doubt * self._compute_s(self._position, stop) <= load_alone_s:
                break
            stop = earlier
        return stop

    def _loadable(self) -> list[range]:
        return self._arrivals.ranges_from(self._history.chunks_behind(self._position).start)

    def _reach(self, token: int) -> None:
        reached = self._history.chunks_behind(token).start
        self._arrivals.forget(range(self._reached_chunks, reached))
        self._reached_chunks = max(self._reached_chunks, reached)

    def _decision(self, action: Action, stop: int) -> Decision:
        return Decision(action, TokenRange(self._position, stop))

    def _jump_stop(self) -> int:
        """Where the tokens at ``position`` end that are in the cache already."""
        stop = self._position
        for chunk in self._history.chunks_behind(self._position):
            if not self._arrivals.is_taken(chunk):
                break
            stop = self._history.chunk_first(chunk + 1)
        return stop

    def _compute_s(self, first: int, stop: int) -> float:
        step_tokens = max(1.0, self._rates.step_tokens.value)
        return self._rates.compute_cost(self._compute).compute_s(first, stop, step_tokens)
