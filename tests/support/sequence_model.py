"""What a sequence holds, and what of it may be left when its tail or its daemon is gone."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class SequenceModel:
    """All tokens since a sequence was made, of which some are ``dropped`` at the front.

    At least ``safe`` of ``tokens`` survive a kill. More may: what is left ends with a complete
    chunk or at one of the ``flushed`` lengths, those of flushes without an answer included.
    """

    chunk_tokens: int
    dropped: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    safe: int = 0
    flushed: set[int] = field(default_factory=set)
    is_ephemeral: bool = False

    @property
    def complete(self) -> int:
        """Complete chunks that are not dropped."""
        return len(self.tokens) // self.chunk_tokens

    def survives(self, length: int) -> None:
        """Hears that so many tokens are durable."""
        assert self.is_legal(length), f"{length} tokens are durable: {self}"
        self.safe = length

    def is_legal(self, length: int) -> bool:
        """Whether so many tokens may be left."""
        is_end = length % self.chunk_tokens == 0 or length in self.flushed
        return is_end and self.safe <= length <= len(self.tokens)

    def lose(self, left: int) -> int:
        """Goes on with what is left; returns how many tokens are lost."""
        assert self.is_legal(left), f"{left} of {len(self.tokens)} tokens are left: {self}"
        lost = len(self.tokens) - left
        del self.tokens[left:]
        self.flushed = {length for length in self.flushed if length <= left}
        return lost

    def is_now(self, length: int) -> None:
        """Hears how long it is while it is open: shorter only where it could not be kept."""
        if length != len(self.tokens):
            self.lose(length)

    def cut(self, length: int) -> None:
        """A flushed tail is gone that holds more than is left, or that a chunk has replaced."""
        complete = length // self.chunk_tokens
        if length < self.safe or complete < self.complete:
            self.safe = min(self.safe, complete * self.chunk_tokens)
        del self.tokens[length:]
        self.flushed = {flushed for flushed in self.flushed if flushed <= length}

    def cut_front(self, chunks: int) -> None:
        """Drops chunks at the front."""
        length = chunks * self.chunk_tokens
        self.dropped += self.tokens[:length]
        del self.tokens[:length]
        self.safe = max(0, self.safe - length)
        self.flushed = {flushed - length for flushed in self.flushed if flushed > length}

    def fork(self, keep_chunks: int) -> "SequenceModel":
        """A copy with the first chunks, or (0) with everything; its chunks are durable."""
        tokens = self.tokens[: keep_chunks * self.chunk_tokens or None]
        complete = len(tokens) // self.chunk_tokens * self.chunk_tokens
        return SequenceModel(
            self.chunk_tokens,
            dropped=list(self.dropped),
            tokens=tokens,
            safe=min(max(self.safe, complete), len(tokens)),
            flushed={flushed for flushed in self.flushed if flushed <= len(tokens)},
            is_ephemeral=self.is_ephemeral,
        )
