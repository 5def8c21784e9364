"""How much of what the store has a request loads, and in which mode. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine_adapters.vllm.messages.block_span import BlockSpan, usable_tokens
from engine_adapters.vllm.settings.mode_choice import ModeChoice
from engine_adapters.vllm.settings.options import RestoreMode


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadChoice:
    """The same for all requests of an engine.

    ``mode`` AUTO leaves the mode of each request to ``planner``. Fewer than
    ``least_load_tokens`` are computed rather than loaded.
    """

    mode: RestoreMode
    planner: ModeChoice
    block_tokens: int
    least_load_tokens: int = 1

    @property
    def chunk_tokens(self) -> int:
        """Tokens of a chunk: whole blocks."""
        return self.planner.chunk_tokens

    def usable_tokens(self, *, stored_chunks: int, request_tokens: int) -> int:
        """Stored tokens that a request can use."""
        return usable_tokens(
            stored_tokens=stored_chunks * self.chunk_tokens,
            request_tokens=request_tokens,
            block_tokens=self.block_tokens,
        )

    def mode_of(
        self, *, stored_chunks: int, request_tokens: int, computed_tokens: int
    ) -> RestoreMode:
        """How a request regains what is stored; OFF where that is not worth a load."""
        usable = self.usable_tokens(stored_chunks=stored_chunks, request_tokens=request_tokens)
        if usable - computed_tokens < self.least_load_tokens:
            return RestoreMode.OFF
        if self.mode is not RestoreMode.AUTO:
            return self.mode
        return self.planner.mode(prompt_tokens=request_tokens, stored_chunks=stored_chunks)

    def span(self, block_ids: Sequence[int], *, first_token: int, usable_tokens: int) -> BlockSpan:
        """The blocks from ``first_token`` to the last usable one, of all those of a request."""
        first_block = first_token // self.block_tokens
        return BlockSpan(
            first_block=first_block,
            block_ids=tuple(block_ids[first_block : usable_tokens // self.block_tokens]),
            chunk_blocks=self.chunk_tokens // self.block_tokens,
        )
