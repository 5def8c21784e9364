"""What one forward pass computes: tokens of several sequences, in segments."""

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

    @property
    def ranges(self) -> tuple[range, ...]:
        """The positions of its tokens, in the order of rows."""
        return (range(self.first_position, self.stop_position),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatteredSegment(Segment):
    """Tokens of one sequence at the positions in ``scattered``, which ascend and lie apart.

    In each layer all of them go into the cache first. Then each attends to the keys from position
    ``first_key`` up to its own, whichever pass wrote them. Several such segments of one sequence
    may be in a step: each attends before the next one is written.

    No sink sees these tokens: their states depend on more than the tokens before them.
    """

    scattered: tuple[range, ...]
    first_key: int = 0

    @classmethod
    def of(
        cls,
        scattered: tuple[range, ...],
        *,
        request_id: int,
        first_row: int,
        first_slot: int,
        first_key: int = 0,
    ) -> "ScatteredSegment":
        """The segment of at least one position."""
        return cls(
            request_id=request_id,
            first_row=first_row,
            token_count=sum(map(len, scattered)),
            first_position=scattered[0].start,
            first_slot=first_slot,
            scattered=scattered,
            first_key=first_key,
        )

    @property
    def stop_position(self) -> int:
        """Position after its last token."""
        return self.scattered[-1].stop

    @property
    def ranges(self) -> tuple[range, ...]:
        """As ``Segment``."""
        return self.scattered


class StateSink(Protocol):
    """Sees the states of every step as they are computed; called from one thread only.

    For each step ``begin_step``, then ``take`` once per layer in order, then
    ``end_step``; or ``abandon_step`` as soon as it turns out that it cannot be computed. A sink
    that keeps tensors which it is shown keeps memory of the device, so it does that for few.
    """

    def begin_request(self, request_id: int, token_ids: Sequence[int], stored_tokens: int) -> None:
        """Announces a sequence whose first ``stored_tokens`` states are stored already.

        ``token_ids`` is live: it always covers every token whose states are taken.
        """

    def begin_step(self, segments: Sequence[Segment]) -> None:
        """Announces which tokens the next tensors belong to; other rows are nobody's."""

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
