"""Which tokens of which sequences the next step computes. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine_adapters.runner.step import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one running sequence is: known tokens, and those whose states are in the cache."""

    request_id: int
    first_slot: int
    token_count: int
    computed_count: int

    @property
    def pending_count(self) -> int:
        """Tokens still to compute; 1 while decoding, at least 1 always."""
        return self.token_count - self.computed_count


def plan_step(running: Sequence[Progress], *, token_budget: int) -> list[Segment]:
    """Segments of the next step, at most ``token_budget`` tokens in all.

    Sequences with a single pending token go first, so that no prefill delays a decode;
    what is left of the budget goes to prefills in the order given. ``running`` may hold
    at most ``token_budget`` sequences, then every decode takes part in every step.
    """
    if len(running) > token_budget:
        raise ValueError(f"{len(running)} sequences cannot share {token_budget} tokens a step")
    segments: list[Segment] = []
    first_row = 0
    for progress in sorted(running, key=lambda progress: progress.pending_count > 1):
        token_count = min(progress.pending_count, token_budget - first_row)
        if token_count == 0:
            break
        segments.append(
            Segment(
                request_id=progress.request_id,
                first_row=first_row,
                token_count=token_count,
                first_position=progress.computed_count,
                first_slot=progress.first_slot,
            )
        )
        first_row += token_count
    return segments
