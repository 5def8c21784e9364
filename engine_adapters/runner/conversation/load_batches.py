"""Which rows of stored chunks are loaded at once. Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from engine_adapters.conversation.usable_states import KeptPiece


class LoadBatch(NamedTuple):
    """Rows ``first_row`` to ``first_row + row_count - 1`` of each of some chunks that follow.

    ``first_chunk`` is a number among the chunks that are read. The rows have the positions from
    ``first_position`` on. Only whole chunks are more than one.
    """

    first_chunk: int
    chunk_count: int
    first_row: int
    row_count: int
    first_position: int

    @property
    def token_count(self) -> int:
        """Tokens of all chunks."""
        return self.chunk_count * self.row_count


def chunks_of(pieces: Iterable[KeptPiece]) -> tuple[int, ...]:
    """Numbers of the chunks that have pieces, each once."""
    return tuple(dict.fromkeys(piece.chunk for piece in pieces))


def token_count_of(pieces: Iterable[KeptPiece], chunks: range) -> int:
    """Tokens of the window in ``chunks``, numbers in ``chunks_of``."""
    pieces = tuple(pieces)
    numbers = {chunk: number for number, chunk in enumerate(chunks_of(pieces))}
    return sum(piece.token_count for piece in pieces if numbers[piece.chunk] in chunks)


def load_batches(
    pieces: Iterable[KeptPiece], chunks: range, *, chunk_tokens: int
) -> Iterator[LoadBatch]:
    """What to load of ``chunks``, numbers in ``chunks_of``, in the order of positions."""
    numbers: dict[int, int] = {}
    batch: LoadBatch | None = None
    for piece in pieces:
        number = numbers.setdefault(piece.chunk, len(numbers))
        if number not in chunks:
            continue
        is_whole = piece.token_count == chunk_tokens
        if (
            batch is not None
            and is_whole
            and batch.row_count == chunk_tokens
            and number == batch.first_chunk + batch.chunk_count
        ):
            batch = batch._replace(chunk_count=batch.chunk_count + 1)
            continue
        if batch is not None:
            yield batch
        batch = LoadBatch(number, 1, piece.first_row, piece.token_count, piece.first_position)
    if batch is not None:
        yield batch
