"""One request that computes from the front while its end is being loaded. Pure.

The two pointers of Cake, section 4, as a paged engine can use them: computing moves the
request's position, the workers move the first loaded chunk towards it. When they have met, the
position jumps to the end of what was loaded.
"""

from engine_adapters.vllm.scheduler_side.pace import Pace


class Overtaking:
    """Both pointers of one request. Not thread-safe.

    Invariants: ``first_loaded`` only falls; every token from ``first_loaded * chunk_tokens`` to
    ``stop_token`` has its states in the blocks of all workers; after ``jump`` nothing moves.
    """

    __slots__ = (
        "_chunk_tokens",
        "_first_loaded",
        "_has_jumped",
        "_may_come",
        "_pace",
        "_seen",
        "stop_token",
    )

    def __init__(self, *, stop_token: int, chunk_tokens: int, pace: Pace) -> None:
        self._chunk_tokens = chunk_tokens
        self._pace = pace
        self._first_loaded: int | None = None
        self._has_jumped = False
        self._may_come = True
        self._seen: tuple[int, int] | None = None
        """Tokens that the engine had computed, and the frontier, when the pace was learnt last."""
        self.stop_token = stop_token
        """Behind the last token that may be loaded."""

    def begin_loading(self) -> None:
        """The load is ordered: from here on it shows how fast the store is."""
        self._seen = self._pace.computed_tokens, self.stop_token

    def loaded_from(self, first_loaded: int) -> None:
        """All workers have the chunks from ``first_loaded`` on."""
        if self._first_loaded is None or first_loaded < self._first_loaded:
            self._first_loaded = first_loaded

    def end_loading(self) -> None:
        """The load has ended in all workers."""
        self._may_come = False
        self._seen = None

    @property
    def frontier_token(self) -> int:
        """The first token behind which all is loaded; ``stop_token`` while nothing is."""
        if self._first_loaded is None:
            return self.stop_token
        return min(self._first_loaded * self._chunk_tokens, self.stop_token)

    def jump_from(self, computed_tokens: int) -> int | None:
        """The position to go on at, if the pointers have met; the request has jumped then."""
        self._learn(computed_tokens)
        if self._has_jumped or not self.frontier_token <= computed_tokens < self.stop_token:
            return None
        self._has_jumped = True
        self._seen = None
        return self.stop_token

    def clipped(self, computed_tokens: int, new_tokens: int) -> int:
        """Of ``new_tokens`` behind the position those that loading will not have sooner.

        At least those up to the next chunk: a step that ends where loading has come to is
        followed by the jump.
        """
        self._learn(computed_tokens)
        stop = self.frontier_token
        if self._has_jumped or stop <= computed_tokens:
            return new_tokens
        if self._may_come:
            stop = self._stop_token(computed_tokens)
        next_chunk = (computed_tokens // self._chunk_tokens + 1) * self._chunk_tokens
        stop = max(stop, next_chunk)
        return new_tokens if stop >= self.stop_token else min(new_tokens, stop - computed_tokens)

    def _stop_token(self, computed_tokens: int) -> int:
        """Where a step should end for a load that goes on."""
        first_loaded = self._first_loaded
        if first_loaded is None:
            first_loaded = -(-self.stop_token // self._chunk_tokens)
        meeting = self._pace.meeting_token(
            computed_tokens,
            first_loaded=first_loaded,
            stop_token=self.stop_token,
            chunk_tokens=self._chunk_tokens,
        )
        safe = self._pace.safe_token(
            computed_tokens, first_loaded=first_loaded, chunk_tokens=self._chunk_tokens
        )
        return min(meeting, safe // self._chunk_tokens * self._chunk_tokens)

    def _learn(self, computed_tokens: int) -> None:
        """How far loading came while the engine computed what it has since the last time."""
        if self._seen is None:
            return
        engine_tokens, frontier = self._seen
        count = self._pace.computed_tokens - engine_tokens
        if count == 0:
            return
        reached = -(-computed_tokens // self._chunk_tokens) * self._chunk_tokens
        is_bound = self.frontier_token <= reached
        self._pace.add(
            computed_tokens=count,
            loaded_tokens=frontier - self.frontier_token,
            is_bound=is_bound,
        )
        self._seen = None if is_bound else (self._pace.computed_tokens, self.frontier_token)
