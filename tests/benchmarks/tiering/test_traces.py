import json
from pathlib import Path

import pytest

from benchmarks.benchmark import BenchmarkError
from benchmarks.tiering.policies import PolicyName
from benchmarks.tiering.trace import Request, read_trace
from benchmarks.tiering.trace_replay import Step, found_percent, steps


def request(arrival_s: float, *blocks: int) -> Request:
    return Request(arrival_s=arrival_s, tokens=100, blocks=blocks)


def test_a_trace_is_read_in_the_order_of_arrival(tmp_path: Path) -> None:
    lines = [
        {"timestamp": stamp, "input_length": 600, "output_length": 5, "hash_ids": blocks}
        for stamp, blocks in ((2000, [1, 2]), (500, [1, 1]))
    ]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    assert read_trace(path) == [
        Request(arrival_s=0.5, tokens=605, blocks=(1,)),
        Request(arrival_s=2.0, tokens=605, blocks=(1, 2)),
    ]


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"timestamp": 1}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(BenchmarkError, match="trace"):
        read_trace(path)


def test_a_block_counts_with_all_before_it() -> None:
    requests = [request(0, 1, 2, 3), request(1, 1, 2, 3), request(2, 9, 2, 3)]
    order, waiting = steps(requests, None)
    assert waiting == 0
    assert found_percent(requests, order, PolicyName.LRU, 100) == pytest.approx(100 * 3 / 9)


def test_requests_wait_when_the_server_is_busy() -> None:
    requests = [request(number / 10, number) for number in range(200)]
    idle, few = steps(requests, 0.1)
    assert few < 1
    busy, many = steps(requests, 2.0)
    assert many > 20
    for order in (idle, busy):
        for is_start in (False, True):
            assert [s.request for s in order if s.is_start is is_start] == list(range(200))
        entered = 0
        for step in order:
            entered += not step.is_start
            assert not step.is_start or step.request < entered


def test_hints_keep_what_somebody_waits_for() -> None:
    requests = [request(0, 1, 2), request(1, 3, 4), request(2, 1, 2)]
    order = [
        Step(request=0, is_start=False),
        Step(request=0, is_start=True),
        Step(request=1, is_start=False),
        Step(request=2, is_start=False),
        Step(request=1, is_start=True),
        Step(request=2, is_start=True),
    ]
    found = [
        found_percent(requests, order, policy, 2) for policy in (PolicyName.LRU, PolicyName.OURS)
    ]
    assert found == [0, pytest.approx(100 * 2 / 6)]
