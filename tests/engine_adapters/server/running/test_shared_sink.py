from typing import Any

import pytest
import torch

from engine_adapters.runner.model.step import NullSink, Segment
from engine_adapters.server.running.shared_sink import SharedSink


class Recorder(NullSink):
    def __init__(self) -> None:
        self.calls: list[Any] = []

    def begin_step(self, segments: Any) -> None:
        self.calls.append([segment.request_id for segment in segments])

    def take(self, layer: int, *_: Any) -> None:
        self.calls.append(layer)

    def end_step(self) -> None:
        self.calls.append("end")

    def abandon_step(self) -> None:
        self.calls.append("abandon")

    def end_request(self, request_id: int) -> None:
        self.calls.append(("over", request_id))


def segments(*request_ids: int) -> list[Segment]:
    return [
        Segment(request_id=one, first_row=row, token_count=1, first_position=0, first_slot=row)
        for row, one in enumerate(request_ids)
    ]


def test_each_saver_sees_the_steps_of_its_requests() -> None:
    sink, one, two = SharedSink(), Recorder(), Recorder()
    sink.assign(1, one)
    sink.assign(2, two)
    sink.assign(3, one)
    state = torch.zeros(1)
    sink.begin_step(segments(1, 3, 4))
    sink.take(0, state, state, state)
    sink.end_step()
    sink.begin_step(segments(2))
    sink.abandon_step()
    # Between steps nothing.
    sink.abandon_step()
    sink.end_request(3)
    assert one.calls == [[1, 3, 4], 0, "end", ("over", 3)]
    assert two.calls == [[2], "abandon"]


def test_what_is_over_is_forgotten() -> None:
    sink, one = SharedSink(), Recorder()
    sink.assign(1, one)
    sink.forget(1)
    sink.forget(7)
    sink.begin_step(segments(1))
    sink.end_step()
    assert one.calls == []
    assert sink.request_count == 0


def test_no_request_announces_itself_to_it() -> None:
    with pytest.raises(RuntimeError, match="request 3"):
        SharedSink().begin_request(3, [], 0)
