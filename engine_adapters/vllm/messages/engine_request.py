"""The parts of vLLM's request and scheduler that the adapter touches, as protocols."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class EngineRequest(Protocol):
    """A request of the engine. Token counts are those of the scheduler."""

    request_id: str
    num_computed_tokens: int
    num_prompt_tokens: int
    num_preemptions: int
    skip_reading_prefix_cache: bool
    all_token_ids: Sequence[int]
    lora_request: Any
    prefill_stats: Any
    block_hashes: Sequence[bytes]

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt and those generated so far."""


Jump = Callable[[EngineRequest, int], None]
"""Moves a request to a position."""


def set_position(request: EngineRequest, position: int) -> None:
    """The jump that suffices where the model runner looks at the position in every step."""
    request.num_computed_tokens = position


class BlockTables(Protocol):
    """The scheduler's blocks, by request."""

    def ids_of(self, request_id: str) -> Sequence[int]:
        """Numbers of all blocks that the request holds, in the order of its tokens."""

    def reserve_all(self, request: EngineRequest) -> bool:
        """Gives the request blocks for all its tokens; False when there are too few."""


def note_external_tokens(request: EngineRequest, token_count: int) -> None:
    """Has the engine's own statistics of a request's first prefill say what came from outside."""
    stats = request.prefill_stats
    if stats is not None and request.num_preemptions == 0:
        stats.set(
            num_prompt_tokens=request.num_prompt_tokens,
            num_local_cached_tokens=stats.num_local_cached_tokens,
            num_external_cached_tokens=token_count,
        )
