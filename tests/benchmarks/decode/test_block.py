import random

import torch

from benchmarks.decode.block import BlockSink
from engine_adapters.runner.step import Segment


class Recorder:
    """Notes what it is shown."""

    def __init__(self) -> None:
        self.begun: dict[int, tuple[int, int]] = {}
        self.steps: list[list[tuple[int, int]]] = []
        self.ended: list[int] = []

    def begin_request(self, request_id: int, token_ids: list[int], stored_tokens: int) -> None:
        self.begun[request_id] = (len(token_ids), stored_tokens)

    def begin_step(self, segments: list[Segment]) -> None:
        self.steps.append([(part.request_id, part.first_position) for part in segments])

    def take(
        self, layer: int, hidden: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Ignored."""

    def end_step(self) -> None:
        """Ignored."""

    def end_request(self, request_id: int) -> None:
        self.ended.append(request_id)


def segments(position: int) -> list[Segment]:
    return [
        Segment(
            request_id=number,
            first_row=number,
            token_count=1,
            first_position=position,
            first_slot=0,
        )
        for number in range(2)
    ]


def test_sequences_begin_spread_over_the_lead_at_position_0() -> None:
    sink, inner = BlockSink(random.Random(1), lead_steps=4), Recorder()
    sink.begin_block(inner, steps=8)  # type: ignore[arg-type]  # its own segments are enough
    for step in range(4):
        sink.begin_step(segments(511 + step))
        sink.end_step()
    assert inner.begun == {0: (8, 0), 1: (8, 0)}
    assert inner.steps == [[(0, 0)], [(0, 1)], [(0, 2), (1, 0)], [(0, 3), (1, 1)]]
    sink.end_request(1)
    sink.end_request(7)
    assert inner.ended == [1]
