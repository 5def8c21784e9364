import os
from pathlib import Path

import pytest
import torch

from benchmarks.benchmark import BenchmarkError
from benchmarks.decode.direct import ROW_BYTES, DirectSink
from engine_adapters.runner.model.step import Segment

LAYERS, TOKENS = 2, 4
NOTHING = torch.empty(0)


def segment(request_id: int, row: int, position: int) -> Segment:
    return Segment(
        request_id=request_id, first_row=row, token_count=1, first_position=position, first_slot=0
    )


def test_every_row_goes_to_its_sequence_layer_and_token(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT))
    except OSError:
        pytest.skip("the file system has no O_DIRECT")
    sink = DirectSink(path, batch_size=2, layer_count=LAYERS, chunk_tokens=TOKENS)
    sink.begin_request(5, [], 0)
    sink.begin_request(6, [], 0)
    sink.begin_step([segment(6, 0, TOKENS + 1), segment(5, 1, 2)])
    for layer in range(LAYERS):
        hidden = torch.tensor([[600.0 + layer], [500.0 + layer]]).expand(2, ROW_BYTES // 4)
        sink.take(layer, hidden, NOTHING, NOTHING)
    sink.end_step()
    assert sink.write_count == 2 * LAYERS
    sink.end_request(5)
    # A place that is free again is used again.
    sink.begin_request(7, [], 0)
    with pytest.raises(BenchmarkError, match="4096 bytes"):
        sink.take(0, torch.zeros(2, 8), NOTHING, NOTHING)
    sink.close()
    rows = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.float32)
    rows = rows.view(2, LAYERS, TOKENS, -1)
    for layer in range(LAYERS):
        assert (rows[0, layer, 2] == 500 + layer).all()
        assert (rows[1, layer, 1] == 600 + layer).all()
    assert rows.count_nonzero() == 2 * LAYERS * ROW_BYTES // 4
