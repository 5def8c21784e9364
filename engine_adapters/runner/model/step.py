"""What one forward pass computes: tokens of several sequences, one segment each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive tokens of one sequence in a step.

    Rows ``first_row`` to ``first_row + token_count - 1`` of the step's tensors are the
    tokens at positions ``first_position`` onwards. Position p of the sequence has slot
    ``first_slot + p`` in the cache. ``dropped_count`` tokens before it were cut from its history:
    the position of a token is so much less than its number among all tokens that there were.
    """

    request_id: int
    first_row: int
    token_count: int
    first_position: int
    first_slot: int
    dropped_count: int = 0

    @property
    def rows(self) -> slice:
        """The segment's rows in the step's tensors."""
        return slice(self.first_row, self.first_row + self.token_count)

    @property
    def stop_position(self) -> int:
        """Position behind the segment's last token."""
        return self.first_position + self.token_count

    @property
    def stop_token(self) -> int:
        """Number of the token after its last one, among all that the sequence ever had."""
        return self.stop_position + self.dropped_count


class StateSink(Protocol):
    """Sees the states of every step as they are computed; called from one thread only.

    For each step ``begin_step``, then ``take`` once per layer in order, then
    ``end_step``; or ``abandon_step`` as soon as it turns out that it cannot be computed. A sink
    must not keep the tensors that it is shown.
    """

    def begin_request(self, request_id: int, token_ids: Sequence[int], stored_tokens: int) -> None:
        """Announces a sequence whose first ``stored_tokens`` states are stored already.

        ``token_ids`` is live: it always covers every token whose states are taken.
        """

    def begin_step(self, segments: Sequence[Segment]) -> None:
        """Announces which tokens the next tensors belong to."""

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        """The input of one layer, before its norm, and the keys and values made from it.

        ``hidden`` is [rows, hidden_size]; ``keys`` (unrotated) and ``values`` are [rows,
        kv_heads, head_dim]. The model makes new tensors for every layer: what it has shown
        is not overwritten, only freed.
        """

    def end_step(self) -> None:
        """The states of the step are complete."""

    def abandon_step(self) -> None:
        """The step will not end: what was taken of it is nobody's. Between steps nothing."""

    def end_request(self, request_id: int) -> None:
        """No more states of this sequence will come."""


class NullSink:
    """A sink that keeps nothing."""

    def begin_request(self, request_id: int, token_ids: Sequence[int], stored_tokens: int) -> None:
        """Ignored."""

    def begin_step(self, segments: Sequence[Segment]) -> None:
        """Ignored."""

    def take(self, layer: int, hidden: Tensor, keys: Tensor, values: Tensor) -> None:
        """Ignored."""

    def end_step(self) -> None:
        """Ignored."""

    def abandon_step(self) -> None:
        """Ignored."""

    def end_request(self, request_id: int) -> None:
        """Ignored."""
