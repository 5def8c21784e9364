"""The batch that decodes: what its sink is shown, and that no step is longer than another."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.decode.batch import DecodingBatch
from engine_adapters.runner.model.model import Model
from engine_adapters.runner.model.random_model import RandomModelShape, write_random_model
from engine_adapters.runner.model.step import NullSink, Segment

SHAPE = RandomModelShape(
    vocab_size=300,
    hidden_size=32,
    intermediate_size=32,
    layer_count=2,
    head_count=2,
    kv_head_count=2,
    position_count=16,
)


class Recorder(NullSink):
    """Notes the segments of each step and the requests."""

    def __init__(self) -> None:
        self.steps: list[list[Segment]] = []
        self.begun: list[int] = []
        self.ended: list[int] = []

    def begin_request(self, request_id: int, token_ids: Sequence[int], stored_tokens: int) -> None:
        self.begun.append(request_id)

    def begin_step(self, segments: Sequence[Segment]) -> None:
        self.steps.append(list(segments))

    def end_request(self, request_id: int) -> None:
        self.ended.append(request_id)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    write_random_model(tmp_path, SHAPE, ["some text to train on "])
    return Model.from_directory(tmp_path)


def test_every_step_decodes_behind_the_same_history(model: Model) -> None:
    """More steps than the model has positions, so that none can be longer than another."""
    sink = Recorder()
    batch = DecodingBatch(model, batch_size=3, history_tokens=10, sink=sink)
    assert all(batch.step() > 0 for _ in range(20))
    batch.end()
    assert sink.begun == sink.ended == [0, 1, 2]
    assert len(sink.steps) == 20
    for segments in sink.steps:
        assert [part.first_position for part in segments] == [10, 10, 10]
        assert [part.token_count for part in segments] == [1, 1, 1]
        assert [part.first_slot for part in segments] == [0, 11, 22]
