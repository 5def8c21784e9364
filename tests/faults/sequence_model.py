"""A sequence as a plain model: what was appended to it, and how much of that no crash may take."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.support.rows import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredSequence:
    """What a start has found of a sequence: its durable tokens and the chunks of them."""

    length_tokens: int
    keys: tuple[bytes, ...]
    tail_key: bytes = b""

    @property
    def chunk_keys(self) -> list[bytes]:
        """All chunks, the short one of the tail last."""
        return [*self.keys, *filter(None, [self.tail_key])]


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceModel:
    """A sequence that holds ``tokens``; a crash leaves at least the first ``safe`` of them.

    It ends behind a complete chunk then, or at one of the lengths in ``flushed``, at which a
    flush was begun.
    """

    chunk_tokens: int
    tokens: tuple[int, ...] = ()
    safe: int = 0
    flushed: frozenset[int] = frozenset()

    @property
    def length(self) -> int:
        """Tokens that were appended and not dropped."""
        return len(self.tokens)

    @property
    def complete(self) -> int:
        """Tokens in complete chunks."""
        return self.length // self.chunk_tokens * self.chunk_tokens

    def appended(self, tokens: Sequence[int]) -> "SequenceModel":
        """With more tokens: none of them is safe, and what was stays so."""
        return replace(self, tokens=(*self.tokens, *tokens))

    def flush_begun(self) -> "SequenceModel":
        """A flush is sent: its length may be what a crash leaves."""
        return replace(self, flushed=self.flushed | {self.length})

    def flush_done(self) -> "SequenceModel":
        """A flush was acknowledged: nothing of it may be lost."""
        return replace(self.flush_begun(), safe=self.length)

    def settled(self) -> "SequenceModel":
        """All complete chunks are durable and named, as a fork of the sequence leaves it."""
        return replace(self, safe=max(self.safe, self.complete))

    def cut(self, length: int) -> "SequenceModel":
        """A truncation was acknowledged.

        What was flushed of a tail is gone when it holds more than is left, and may be gone when
        a complete chunk has taken its place meanwhile.
        """
        model = self.left(length)
        is_in_tail = self.complete <= length
        if self.safe <= length and is_in_tail:
            return model
        return replace(model, safe=min(self.safe, model.complete))

    def forked(self, keep_chunks: int) -> "SequenceModel":
        """A fork with its first chunks, or with all and its tail for 0."""
        model = self.settled()
        return model.cut(keep_chunks * self.chunk_tokens) if keep_chunks else model

    def left(self, length: int) -> "SequenceModel":
        """What is left where a session or a daemon has ended, whatever was safe."""
        flushed = frozenset(at for at in self.flushed if at <= length)
        return replace(self, tokens=self.tokens[:length], flushed=flushed)

    def recovered(self, length: int) -> "SequenceModel":
        """What a start has found: the index has it, so that the next kill leaves it too."""
        return replace(self.left(length), safe=length)

    def problem(self, found: RecoveredSequence, rows: Rows) -> str | None:
        """Why a start must not find this of the sequence; None if it may."""
        length = found.length_tokens
        if not self.safe <= length <= self.length:
            return f"{length} tokens are left, not {self.safe} to {self.length}"
        if length % self.chunk_tokens and length not in self.flushed:
            return f"{length} tokens are left, but flushed were only {sorted(self.flushed)}"
        tokens = self.tokens[:length]
        if list(found.keys) != rows.keys(tokens) or found.tail_key != rows.tail_key(tokens):
            return f"its {length} tokens are not named by their chunks"
        return None

    def chunk_slices(self, found: RecoveredSequence, rows: Rows) -> Iterator[list[bytes]]:
        """The slices of each chunk of ``found.chunk_keys``."""
        for start in range(0, found.length_tokens, self.chunk_tokens):
            end = min(start + self.chunk_tokens, found.length_tokens)
            yield rows.slices(self.tokens[start:end])

    def encode(self) -> list[Any]:
        """For JSON."""
        return [self.chunk_tokens, self.tokens, self.safe, sorted(self.flushed)]

    @classmethod
    def decode(cls, fields: list[Any]) -> "SequenceModel":
        """From JSON."""
        chunk_tokens, tokens, safe, flushed = fields
        return cls(
            chunk_tokens=chunk_tokens,
            tokens=tuple(tokens),
            safe=safe,
            flushed=frozenset(flushed),
        )


Possible = tuple[SequenceModel | None, ...]
"""What a sequence may be: one of these, where None is its absence."""


def judge(
    possible: Possible, found: RecoveredSequence | None, rows: Rows
) -> tuple[SequenceModel | None, str | None]:
    """Which of the possibilities a start has found, and a sentence if it is none of them."""
    problems = []
    for model in possible:
        if model is None or found is None:
            if model is None and found is None:
                return None, None
            problem: str | None = "it is not there" if found is None else "it should not be there"
        else:
            problem = model.problem(found, rows)
        if problem is None:
            return model, None
        problems.append(problem)
    return None, "; or ".join(problems)
