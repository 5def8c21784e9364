"""Chunks of entries at their places in a request's blocks. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine_adapters.vllm.messages.block_span import BlockCopy


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedSpan:
    """Whole chunks, each from its own position on, which need not be that of a block.

    ``first_tokens`` are the positions of the chunks' first tokens, ascending; ``block_ids`` are the
    engine's blocks of the whole request.
    """

    first_tokens: tuple[int, ...]
    block_ids: tuple[int, ...]
    chunk_blocks: int
    block_tokens: int

    @property
    def chunks(self) -> range:
        """The chunks, by their numbers in this span."""
        return range(len(self.first_tokens))

    def copy_of(self, chunk: int) -> BlockCopy:
        """Which blocks a chunk lies in, and from which position on."""
        first = self.first_tokens[chunk]
        stop = first + self.chunk_blocks * self.block_tokens
        ids = self.block_ids[first // self.block_tokens : -(-stop // self.block_tokens)]
        return BlockCopy(chunk, 0, self.chunk_blocks, ids, first)

    def ids_of(self, chunks: Sequence[int]) -> Iterator[int]:
        """The engine's numbers of all blocks that some chunks lie in."""
        for chunk in chunks:
            yield from self.copy_of(chunk).block_ids
