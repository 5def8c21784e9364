import random

import torch

from benchmarks.decode.stints import StintSink
from engine_adapters.runner.model.step import Segment


class Recorder:
    """Notes what it is shown."""

    def __init__(self) -> None:
        self.begun: dict[int, tuple[int, int]] = {}
        self.steps: list[list[tuple[int, int]]] = []
        self.taken: list[int] = []
        self.ended: list[int] = []

    def begin_request(self, request_id: int, token_ids: list[int], stored_tokens: int) -> None:
        self.begun[request_id] = (len(token_ids), stored_tokens)

    def begin_step(self, segments: list[Segment]) -> None:
        self.steps.append([(part.request_id, part.first_position) for part in segments])

    def take(
        self, layer: int, hidden: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        self.taken.append(layer)

    def end_step(self) -> None:
        """Ignored."""

    def abandon_step(self) -> None:
        self.steps.pop()

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


def test_each_sink_sees_sequences_of_its_own() -> None:
    """From position 0 on without a gap, begun spread over its lead."""
    first, second = Recorder(), Recorder()
    sink = StintSink(
        {"first": first, "second": second},  # type: ignore[dict-item]  # as far as it is used
        random.Random(1),
        lead_steps=4,
        steps_max=8,
    )
    states = torch.zeros(2, 1)
    for turn in range(4):
        sink.show(("first", "second")[turn % 2])
        for step in range(2):
            sink.begin_step(segments(511 + 2 * turn + step))
            sink.take(turn, states, states, states)
            sink.end_step()
    for inner in (first, second):
        assert inner.begun == {0: (8, 0), 1: (8, 0)}
        assert inner.steps == [[(0, 0)], [(0, 1)], [(0, 2), (1, 0)], [(0, 3), (1, 1)]]
    assert (first.taken, second.taken) == ([0, 0, 2, 2], [1, 1, 3, 3])
    sink.begin_step(segments(519))
    sink.abandon_step()
    assert len(second.steps) == 4
    sink.end_request(1)
    sink.end_request(7)
    assert first.ended == second.ended == [1]
