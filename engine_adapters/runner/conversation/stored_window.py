"""What cuts have left of a conversation, on its way from stored pieces into the cache."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from engine_adapters.conversation.conversations import StoredStates
from engine_adapters.conversation.history import dropped
from engine_adapters.conversation.usable_states import UsableStates, usable_states
from engine_adapters.reading.piece import Piece
from engine_adapters.reading.span import Span
from engine_adapters.reading.stored_pieces import StoredPieces
from engine_adapters.runner.conversation.load_batches import (
    LoadBatch,
    chunks_of,
    load_batches,
    token_count_of,
)
from engine_adapters.runner.model.kv_cache import KvCache
from engine_adapters.runner.restore.layer_loader import LayerLoader
from engine_adapters.runner.restore.layered_history import Reached
from engine_adapters.runner.save.snapshot import token_axis
from kvstored_contract.keys import Cut


class PieceFinder:
    """Asks the store which pieces to load, on the thread of a reader."""

    def __init__(self, ask: Callable[[], StoredStates], *, chunk_tokens: int) -> None:
        self._ask = ask
        self.chunk_tokens = chunk_tokens
        self.found: StoredStates | None = None

    def __call__(self) -> StoredPieces:
        """The chunks that the window lies in, each once."""
        found = self.found = self._ask()
        chunks = chunks_of(found.usable.pieces)
        first = {piece.chunk: piece.first_position for piece in reversed(found.usable.pieces)}
        pieces = tuple(
            # All tokens that a chunk has are read; those of the window are loaded.
            Piece(
                found.keys[chunk],
                first[chunk],
                min(self.chunk_tokens, found.stop - chunk * self.chunk_tokens),
            )
            for chunk in chunks
        )
        return StoredPieces(pieces=pieces, is_stored=(True,) * len(pieces), lease=found.lease)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlace:
    """Where what ``cuts`` have left goes: position p to slot ``first_slot + p``."""

    cuts: tuple[Cut, ...]
    cache: KvCache
    first_slot: int


class StoredWindow:
    """Makes keys and values of a window from the pieces that a finder has found.

    Keys are rotated at the positions that their tokens have now. As ``LayeredHistory``; the
    engine's thread only.
    """

    def __init__(self, finder: PieceFinder, loader: LayerLoader, place: WindowPlace) -> None:
        self._finder = finder
        self._loader = loader
        self._place = place
        self._kept: int | None = None
        self._usable = UsableStates()

    @property
    def usable(self) -> UsableStates:
        """What was reached last."""
        return self._usable

    def reached(self, kept: int) -> Reached:
        """As ``LayeredHistory``; pieces are the chunks that were found.

        Where a chunk is lost before the last cut, nothing is reached: without its states no other
        position is that which its tokens have now. New tokens follow where all cuts are made.
        """
        if kept != self._kept and (found := self._finder.found) is not None:
            self._kept, self._usable = kept, self._usable_of(found, kept)
        usable, cuts = self._usable, self._place.cuts
        return Reached(
            next_token=usable.next_token,
            dropped_count=dropped(cuts[: usable.cut_count]),
            first_unstored=usable.next_token,
            may_follow=usable.next_token > 0 and usable.cut_count == len(cuts),
        )

    def take(self, span: Span, layer: int, chunks: range) -> int:
        """As ``LayeredHistory``."""
        found = self._finder.found
        assert found is not None
        place, token_count = self._place, 0
        numbers = range(span.first_chunk + chunks.start, span.first_chunk + chunks.stop)
        for batch in load_batches(
            found.usable.pieces, numbers, chunk_tokens=self._finder.chunk_tokens
        ):
            self._loader.load_of(
                span,
                layer,
                _rows(span, layer, batch),
                cache=place.cache,
                first_slot=place.first_slot + batch.first_position,
                first_position=batch.first_position,
            )
            token_count += batch.token_count
        return token_count

    def token_count(self, span: Span) -> int:
        """Tokens of the window in a span: of its first and last chunks it may have some only."""
        found = self._finder.found
        assert found is not None
        chunks = range(span.first_chunk, span.first_chunk + span.chunk_count)
        return token_count_of(found.usable.pieces, chunks)

    def _usable_of(self, found: StoredStates, kept: int) -> UsableStates:
        loaded = set(chunks_of(found.usable.pieces)[:kept])
        # Before another cut they would have other positions than they were loaded at.
        return usable_states(
            self._place.cuts,
            [chunk in loaded for chunk in range(len(found.keys))],
            stop=found.stop,
            chunk_tokens=self._finder.chunk_tokens,
            cut_count_min=found.usable.cut_count,
        )


def _rows(span: Span, layer: int, batch: LoadBatch) -> Tensor:
    """The rows of a batch: [chunks, *shape of a slice with so many tokens]."""
    first_chunk = batch.first_chunk - span.first_chunk
    states = span.states(layer, batch.chunk_count, first_chunk=first_chunk)
    axis = 1 + token_axis(states.shape[1:])
    return states.narrow(axis, batch.first_row, batch.row_count)
