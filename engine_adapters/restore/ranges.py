"""Tokens of a request: which chunks of its history are stored, which are not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple


class TokenRange(NamedTuple):
    """Consecutive tokens ``first`` to ``stop - 1``."""

    first: int
    stop: int

    @property
    def token_count(self) -> int:
        """Number of tokens."""
        return self.stop - self.first


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A prompt and the chunks of it that are stored; ``is_stored`` has one entry a chunk.

    Chunk i holds the tokens from ``i * chunk_tokens`` on. The last token of the prompt is
    never restored, because its logits are wanted: the last chunk may end before its end.
    Tokens behind the last chunk are new. Raises ValueError.
    """

    prompt_tokens: int
    chunk_tokens: int
    is_stored: tuple[bool, ...]

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.chunk_tokens < 1:
            raise ValueError("a prompt and a chunk have at least one token")
        if (self.chunk_count - 1) * self.chunk_tokens >= self.prompt_tokens - 1:
            raise ValueError(
                f"a prompt of {self.prompt_tokens} tokens cannot use {self.chunk_count} chunks of "
                f"{self.chunk_tokens} tokens"
            )

    @property
    def chunk_count(self) -> int:
        """Chunks of the history, stored or not."""
        return len(self.is_stored)

    @property
    def token_count(self) -> int:
        """Tokens of the history: those that chunks could give."""
        return self.chunk_first(self.chunk_count)

    def chunk_first(self, chunk: int) -> int:
        """First token of a chunk, and where the chunk before it ends."""
        return min(chunk * self.chunk_tokens, self.prompt_tokens - 1)

    def chunks_behind(self, position: int) -> range:
        """The chunks that have tokens from ``position`` on."""
        if position >= self.token_count:
            return range(self.chunk_count, self.chunk_count)
        return range(position // self.chunk_tokens, self.chunk_count)

    def without_short_chunk(self) -> "History":
        """Without the last chunk, if not all of its tokens are used."""
        if self.chunk_count * self.chunk_tokens == self.token_count:
            return self
        return replace(self, is_stored=self.is_stored[:-1])

    def stored_ranges(self) -> tuple[range, ...]:
        """The stored chunks as the longest ranges of consecutive ones, in order."""
        return true_ranges(self.is_stored)

    def tokens(self, chunks: range) -> TokenRange:
        """The tokens of consecutive chunks."""
        return TokenRange(self.chunk_first(chunks.start), self.chunk_first(chunks.stop))


def true_ranges(flags: Sequence[bool]) -> tuple[range, ...]:
    """The indices of true flags as the longest ranges of consecutive ones, in order."""
    result = []
    for flag, members in groupby(range(len(flags)), key=lambda index: flags[index]):
        indices = list(members)
        if flag:
            result.append(range(indices[0], indices[-1] + 1))
    return tuple(result)
