"""How the engine's blocks and the store's chunks of one request fit together. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class BlockCopy(NamedTuple):
    """Blocks ``first_block`` to ``stop_block - 1`` of ``chunk`` go to ``block_ids``.

    ``first_token`` is the position of the first of their tokens, where that is not the one that
    chunk and block have in a stored prefix; it lies in the first of ``block_ids``.
    """

    chunk: int
    first_block: int
    stop_block: int
    block_ids: Sequence[int]
    first_token: int | None = None

    @property
    def block_count(self) -> int:
        """Blocks of the chunk that are copied."""
        return self.stop_block - self.first_block


def usable_tokens(*, stored_tokens: int, request_tokens: int, block_tokens: int) -> int:
    """Stored tokens that a request can use: whole blocks, and never its last token.

    The last token is computed because its logits are what the request wants.
    """
    return min(stored_tokens, (request_tokens - 1) // block_tokens * block_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSpan:
    """The blocks of a request from ``first_block`` on that are loaded, by their places.

    ``block_ids`` are the engine's numbers; block i of the request lies in chunk
    ``i // chunk_blocks``. The first chunk may begin before the span, the last may end behind.
    """

    first_block: int
    block_ids: tuple[int, ...]
    chunk_blocks: int

    @property
    def stop_block(self) -> int:
        """Behind the last block."""
        return self.first_block + len(self.block_ids)

    @property
    def chunks(self) -> range:
        """The chunks that hold the blocks."""
        return range(
            self.first_block // self.chunk_blocks, -(-self.stop_block // self.chunk_blocks)
        )

    def copy_of(self, chunk: int) -> BlockCopy:
        """Which blocks of a chunk are wanted, and where."""
        chunk_first = chunk * self.chunk_blocks
        first = max(self.first_block, chunk_first)
        stop = min(self.stop_block, chunk_first + self.chunk_blocks)
        ids = self.block_ids[first - self.first_block : stop - self.first_block]
        return BlockCopy(chunk, first - chunk_first, stop - chunk_first, ids)

    def ids_of(self, chunks: Sequence[int]) -> Iterator[int]:
        """The engine's numbers of all wanted blocks of some chunks."""
        for chunk in chunks:
            yield from self.copy_of(chunk).block_ids


def claimed_chunks(*, computed_tokens: int, chunk_tokens: int) -> int:
    """Leading chunks that computing has touched or reaches in the step that runs.

    Nothing may be written to their blocks any more.
    """
    return -(-computed_tokens // chunk_tokens)
