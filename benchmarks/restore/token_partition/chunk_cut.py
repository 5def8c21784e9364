"""Tokens of consecutive chunks, where the first and the last chunk may be cut. Pure."""

from typing import NamedTuple

from engine_adapters.restore.ranges import TokenRange


class ChunkCut(NamedTuple):
    """Chunks ``chunks`` of which the same tokens are taken: ``tokens``, counted in each."""

    chunks: range
    tokens: range

    @property
    def token_count(self) -> int:
        """Tokens of all its chunks."""
        return len(self.chunks) * len(self.tokens)


def cuts_of(tokens: TokenRange, chunk_tokens: int) -> tuple[ChunkCut, ...]:
    """``tokens`` in order: the end of a cut chunk, whole chunks, the start of a cut chunk.

    At most three cuts; one where nothing is cut, and none for no tokens.
    """
    cuts = []
    first = tokens.first
    while first < tokens.stop:
        chunk, skipped = divmod(first, chunk_tokens)
        if skipped or tokens.stop - first < chunk_tokens:
            stop = min(tokens.stop, (chunk + 1) * chunk_tokens)
            taken = range(skipped, stop - chunk * chunk_tokens)
            cuts.append(ChunkCut(range(chunk, chunk + 1), taken))
        else:
            stop_chunk = tokens.stop // chunk_tokens
            stop = stop_chunk * chunk_tokens
            cuts.append(ChunkCut(range(chunk, stop_chunk), range(chunk_tokens)))
        first = stop
    return tuple(cuts)
