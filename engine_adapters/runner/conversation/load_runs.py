"""Which rows of stored chunks are loaded at once. Pure."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from engine_adapters.conversation.usable_states import KeptPiece


class LoadRun(NamedTuple):
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


def load_runs(
    pieces: Iterable[KeptPiece], chunks: range, *, chunk_tokens: int
) -> Iterator[LoadRun]:
    """What to load of ``chunks``, numbers in ``chunks_of``, in the order of positions."""
    numbers: dict[int, int] = {}
    run: LoadRun | None = None
    for piece in pieces:
        number = numbers.setdefault(piece.chunk, len(numbers))
        if number not in chunks:
            continue
        is_whole = piece.token_count == chunk_tokens
        if (
            run is not None
            and is_whole
            and run.row_count == chunk_tokens
            and number == run.first_chunk + run.chunk_count
        ):
            run = run._replace(chunk_count=run.chunk_count + 1)
            continue
        if run is not None:
            yield run
        run = LoadRun(number, 1, piece.first_row, piece.token_count, piece.first_position)
    if run is not None:
        yield run
