"""How far a step should compute towards a load that comes from the back. Pure."""

from engine_adapters.restore import History, RecentMean, compute_stop

TOKENS_REMEMBERED = 512
"""Computed tokens that tell how fast the store was meanwhile."""


class Pace:
    """Tokens that are loaded while one is computed; one for all requests of an engine.

    Steps are the clock: whatever makes them slow, the store has longer for its next chunk. Not
    thread-safe.
    """

    __slots__ = ("_loaded",)

    def __init__(self) -> None:
        self._loaded: RecentMean | None = None

    def add(self, *, computed_tokens: int, loaded_tokens: int) -> None:
        """What came while at least one token was computed."""
        if self._loaded is None:
            mean = loaded_tokens / computed_tokens
            weight = min(computed_tokens, TOKENS_REMEMBERED)
            self._loaded = RecentMean(mean, weight=weight, memory=TOKENS_REMEMBERED)
        else:
            self._loaded.add(loaded_tokens, units=computed_tokens)

    def meeting_token(
        self, position: int, *, first_loaded: int, stop_token: int, chunk_tokens: int
    ) -> int:
        """Where computing from ``position`` on and loading will meet (Cake, section 4).

        The chunks from ``first_loaded`` to ``stop_token`` are loaded. The meeting is at the first
        token of that chunk or of one before it; not before ``stop_token`` where no load will help.
        """
        chunk_count = -(-stop_token // chunk_tokens)
        ahead = range(-(-position // chunk_tokens), chunk_count)
        if not ahead:
            return stop_token
        loaded = 0.0 if self._loaded is None else self._loaded.value

        def wait_s(chunk: int) -> float:
            missing_tokens = max(0, first_loaded - chunk) * chunk_tokens
            if missing_tokens and not loaded:
                return float("inf")
            return missing_tokens / loaded if missing_tokens else 0.0

        # In the time that a token takes to compute instead of seconds.
        return compute_stop(
            History(
                prompt_tokens=stop_token + 1,
                chunk_tokens=chunk_tokens,
                is_stored=(True,) * chunk_count,
            ),
            position,
            [ahead],
            compute_s=lambda first, stop: float(stop - first),
            wait_s=wait_s,
            project_s=0.0,
        )
