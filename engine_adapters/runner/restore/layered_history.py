"""Where a history that comes layer after layer goes, and how computing goes on after it."""

from dataclasses import dataclass
from typing import Protocol

from engine_adapters.reading.span import Span
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What some pieces of a history come to once all layers of them are in the cache.

    ``next_token`` is the number of the first token to compute, among all that there were, of which
    cuts have dropped ``dropped_count``. Nothing from ``first_unstored`` on is stored. New tokens
    ``may_follow`` where the history is as long as the pieces say already.
    """

    next_token: int = 0
    dropped_count: int = 0
    first_unstored: int = 0
    may_follow: bool = False

    @property
    def restored_tokens(self) -> int:
        """Tokens whose states are in the cache."""
        return self.next_token - self.dropped_count


class LayeredHistory(Protocol):
    """The engine's thread only."""

    def take(self, span: Span, layer: int, chunks: range) -> int:
        """Takes a layer of these chunks of a span into the cache; of how many tokens."""

    def reached(self, kept: int) -> Reached:
        """What the first ``kept`` pieces come to. None are kept before they are known."""


class PromptHistory:
    """That of a prompt: complete chunks from its first token on."""

    def __init__(self, loader: LayerLoader, target: Target, *, chunk_tokens: int) -> None:
        self._loader = loader
        self._target = target
        self._chunk_tokens = chunk_tokens

    def take(self, span: Span, layer: int, chunks: range) -> int:
        """As ``LayeredHistory``."""
        self._loader.load_pieces(span, layer, chunks, self._target)
        return len(chunks) * self._chunk_tokens

    def reached(self, kept: int) -> Reached:
        """As ``LayeredHistory``."""
        token_count = kept * self._chunk_tokens
        return Reached(
            next_token=token_count, first_unstored=token_count, may_follow=token_count > 0
        )
