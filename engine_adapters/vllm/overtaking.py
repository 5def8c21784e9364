"""One request that computes from the front while its end is being loaded. Pure.

The two pointers of Cake, section 4, as a paged engine can use them: computing moves the
request's position, the workers move the first loaded chunk towards it. When they have met, the
position jumps to the end of what was loaded.
"""


class Overtaking:
    """Both pointers of one request. Not thread-safe.

    Invariants: ``first_loaded`` only falls; every token from ``first_loaded * chunk_tokens`` to
    ``stop_token`` has its states in the blocks of all workers; after ``jump`` nothing moves.
    """

    __slots__ = ("_chunk_tokens", "_first_loaded", "_has_jumped", "stop_token")

    def __init__(self, *, stop_token: int, chunk_tokens: int) -> None:
        self._chunk_tokens = chunk_tokens
        self._first_loaded: int | None = None
        self._has_jumped = False
        self.stop_token = stop_token
        """Behind the last token that may be loaded."""

    @property
    def has_jumped(self) -> bool:
        """Whether the request has used what was loaded."""
        return self._has_jumped

    def loaded_from(self, first_loaded: int) -> None:
        """All workers have the chunks from ``first_loaded`` on."""
        if self._first_loaded is None or first_loaded < self._first_loaded:
            self._first_loaded = first_loaded

    @property
    def frontier_token(self) -> int:
        """The first token behind which all is loaded; ``stop_token`` while nothing is."""
        if self._first_loaded is None:
            return self.stop_token
        return min(self._first_loaded * self._chunk_tokens, self.stop_token)

    def jump_from(self, computed_tokens: int) -> int | None:
        """The position to go on at, if the pointers have met; the request has jumped then."""
        if self._has_jumped or not self.frontier_token <= computed_tokens < self.stop_token:
            return None
        self._has_jumped = True
        return self.stop_token

    def clipped(self, computed_tokens: int, new_tokens: int) -> int:
        """Of ``new_tokens`` behind the position those that are not loaded already.

        At least one: a step that ends at the frontier is followed by the jump.
        """
        room = self.frontier_token - computed_tokens
        if self._has_jumped or room <= 0 or self.frontier_token == self.stop_token:
            return new_tokens
        return min(new_tokens, room)
