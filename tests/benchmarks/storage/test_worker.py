import io
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from benchmarks.benchmark import BenchmarkError
from benchmarks.storage import worker as worker_module
from benchmarks.storage.worker import Worker, answer
from benchmarks.storage.worker_process import WorkerProcess, connect, read_together
from benchmarks.workload import KIB, Workload
from kvstored_client import Ack, Client, Placement
from tests.benchmarks.storage.patient_worker import PatientProcess
from tests.support.daemon import DaemonProcess
from tests.support.waiting import wait_until

WORKLOAD = Workload(chunk_count=4, slice_bytes=64 * KIB, layer_count=4)


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    with WorkerProcess(WORKLOAD, seed=1) as process:
        yield process


@pytest.fixture
def patient() -> Iterator[PatientProcess]:
    with PatientProcess(WORKLOAD, seed=1) as process:
        yield process


def test_a_common_start_that_has_passed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: 10.0, sleep=slept.append)
    monkeypatch.setattr(worker_module, "time", clock)
    worker_module.wait_until(10.25)
    assert slept == [0.25]
    with pytest.raises(BenchmarkError, match=r"ready 0\.5 s after the common start"):
        worker_module.wait_until(9.5)


def test_a_failed_request_is_answered_with_its_sentence() -> None:
    def fail(*, what: str) -> None:
        raise BenchmarkError(f"no {what}")

    line = json.dumps({"verb": "fail", "arguments": {"what": "room"}})
    assert answer({"fail": fail}, line) == {"error": "no room"}


def test_a_worker_that_fails_or_ends_is_reported(worker: WorkerProcess) -> None:
    worker.ask("connect", socket="nowhere")
    with pytest.raises(BenchmarkError, match="a client process failed: "):
        worker.reply()
    worker.ask("unknown")
    with pytest.raises(BenchmarkError, match="a client process has ended"):
        worker.reply()


def test_puts_end_with_the_next_request(
    shared_daemon: DaemonProcess,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The common start is when that request is there."""
    incoming, queues = worker_module.incoming, list[SimpleQueue[str]]()

    def kept() -> SimpleQueue[str]:
        queues.append(incoming())
        return queues[0]

    messages = [
        {"workload": asdict(WORKLOAD), "seed": 1},
        {"verb": "connect", "arguments": {"socket": str(shared_daemon.socket_path)}},
        {"verb": "put", "arguments": {"name": "put", "start": 7.0}},
        {"verb": "stop", "arguments": {}},
    ]
    lines = "".join(json.dumps(message) + "\n" for message in messages)
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    monkeypatch.setattr(worker_module, "incoming", kept)
    monkeypatch.setattr(
        worker_module, "wait_until", lambda moment: wait_until(lambda: not queues[0].empty())
    )
    worker_module.main()
    connected, put, stopped = map(json.loads, capsys.readouterr().out.splitlines())
    assert connected == stopped == {"result": None}
    assert [byte_count for _, byte_count in put["result"]] == [0, 0]


def test_what_was_put_is_counted_and_deleted(
    shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "wait_until", lambda moment: None)
    answers = iter([False, False, True])
    putter = Worker(WORKLOAD, 1, lambda: next(answers))
    putter.connect(str(shared_daemon.socket_path))
    points = putter.put("counted", 7.0)
    putter.close()
    put_bytes = WORKLOAD.payload_bytes
    assert [count for _, count in points] == [0, put_bytes, 2 * put_bytes, 2 * put_bytes]
    with Client(shared_daemon.socket_path, strict=True) as client:
        for name in ("counted 1", "counted 2"):
            keys = [chunk.key for chunk in WORKLOAD.new_chunks(name)]
            assert client.match(WORKLOAD.layout, keys).chunk_count == 0


def test_a_read_that_is_not_cold_or_brings_other_bytes_is_refused(
    patient: PatientProcess, daemon: DaemonProcess
) -> None:
    with Client(daemon.socket_path, strict=True) as client:
        region = client.allocate(WORKLOAD.payload_bytes)
        assert region is not None
        region.view[:] = bytes(region.byte_count)
        client.put(
            WORKLOAD.layout,
            WORKLOAD.new_chunks("zeros"),
            Placement.contiguous(region, WORKLOAD.layout),
            ack=Ack.DURABLE,
        )
    connect([patient], daemon.socket_path)
    with pytest.raises(BenchmarkError, match="another figure"):
        read_together([patient], [["zeros"]])
    daemon.terminate()
    daemon.start()
    connect([patient], daemon.socket_path)
    with pytest.raises(BenchmarkError, match="wrong bytes"):
        read_together([patient], [["zeros"]])
    with pytest.raises(BenchmarkError, match="0 of 4 chunks were read"):
        read_together([patient], [["absent"]])
