"""The parts of vLLM's request and scheduler that the adapter touches, as protocols."""

from collections.abc import Sequence
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

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt and those generated so far."""


class BlockTables(Protocol):
    """The scheduler's blocks, by request."""

    def ids_of(self, request_id: str) -> Sequence[int]:
        """Numbers of all blocks that the request holds, in the order of its tokens."""

    def reserve_all(self, request: EngineRequest) -> bool:
        """Gives the request blocks for all its tokens; False when there are too few."""
