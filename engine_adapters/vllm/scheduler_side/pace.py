"""How far a step should compute towards a load that comes from the back. Pure."""

from engine_adapters.restore import Doubt, History, RecentMean, compute_stop

TOKENS_REMEMBERED = 512
"""Computed tokens that tell how fast the store was meanwhile."""
LOADED_LEAST, LOADED_MOST = 1 / 16, 64.0
"""Bounds of what is believed: a store that stands still is tried again, and one that was fast has
not to be computed towards in the shortest steps when it stands still."""
DOUBT = 2.0
"""Times as much as expected that is believed to come, until it was seen what does."""


class Pace:
    """Tokens that are loaded while the engine computes one; one for all its requests.

    Steps are the clock: whatever makes them slow, the store has longer for its next chunk. As
    fast as computing before anything was seen. Not thread-safe.
    """

    __slots__ = ("_doubt", "_loaded", "computed_tokens")

    def __init__(self) -> None:
        self._loaded = RecentMean(1.0, weight=1, memory=TOKENS_REMEMBERED)
        self._doubt = Doubt(DOUBT)
        self.computed_tokens = 0
        """Tokens that the engine has computed so far."""

    def add(self, *, computed_tokens: int, loaded_tokens: int, is_bound: bool) -> None:
        """What came while at least one token was computed.

        ``is_bound``: there was nothing left to load, so that more might have come. Such a load
        counts as twice as fast as expected: what is too much, the next ones correct.
        """
        least, most = LOADED_LEAST * computed_tokens, LOADED_MOST * computed_tokens
        loaded = float(loaded_tokens)
        if is_bound:
            loaded = max(loaded, 2 * self._loaded.value * computed_tokens)
        loaded = min(max(loaded, least), most)
        self._doubt.add(loaded / (self._loaded.value * computed_tokens))
        self._loaded.add(loaded, units=computed_tokens)

    def safe_token(self, position: int, *, first_loaded: int, chunk_tokens: int) -> int:
        """How far a step from ``position`` on ends before loading alone has what is ahead.

        Even if as much more than expected comes meanwhile as was seen lately: a step cannot be
        cut, and whatever slows it down gives the store more time.
        """
        ahead_tokens = max(0, first_loaded * chunk_tokens - position)
        return position + int(ahead_tokens / self._loaded.value / self._doubt.value)

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

        def wait_tokens(chunk: int) -> float:
            return max(0, first_loaded - chunk) * chunk_tokens / self._loaded.value

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
            wait_s=wait_tokens,
            project_s=0.0,
        )
