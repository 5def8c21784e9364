import json
import time
from collections.abc import Iterator

import pytest

from benchmarks.benchmark import BenchmarkError
from benchmarks.storage.worker import Worker, answer, wait_until
from benchmarks.storage.worker_process import WorkerProcess, connect, read_together
from benchmarks.workload import KIB, Workload
from kvstored_client import Ack, Client, Placement
from tests.support.daemon import DaemonProcess

WORKLOAD = Workload(chunk_count=4, slice_bytes=64 * KIB, layer_count=4)


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    with WorkerProcess(WORKLOAD, seed=1) as process:
        yield process


def test_a_common_start_that_has_passed_is_refused() -> None:
    wait_until(time.monotonic() + 0.001)
    with pytest.raises(BenchmarkError, match="after the common start"):
        wait_until(time.monotonic() - 1.0)


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


def test_puts_end_with_the_next_request(worker: WorkerProcess, daemon: DaemonProcess) -> None:
    connect([worker], daemon.socket_path)
    worker.ask("put", name="put", start=time.monotonic() + 0.5)
    worker.ask("stop")
    assert worker.timeline().byte_count == 0
    assert worker.reply() is None


def test_what_was_put_is_counted_and_deleted(daemon: DaemonProcess) -> None:
    answers = iter([False, False, True])
    putter = Worker(WORKLOAD, 1, lambda: next(answers))
    putter.connect(str(daemon.socket_path))
    points = putter.put("put", time.monotonic() + 0.5)
    putter.close()
    assert [count for _, count in points] == [0, WORKLOAD.payload_bytes, 2 * WORKLOAD.payload_bytes]
    with Client(daemon.socket_path, strict=True) as client:
        for name in ("put 1", "put 2"):
            keys = [chunk.key for chunk in WORKLOAD.new_chunks(name)]
            assert client.match(WORKLOAD.layout, keys).chunk_count == 0


def test_a_read_that_is_not_cold_or_brings_other_bytes_is_refused(
    worker: WorkerProcess, daemon: DaemonProcess
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
    connect([worker], daemon.socket_path)
    with pytest.raises(BenchmarkError, match="another figure"):
        read_together([worker], [["zeros"]])
    daemon.terminate()
    daemon.start()
    connect([worker], daemon.socket_path)
    with pytest.raises(BenchmarkError, match="wrong bytes"):
        read_together([worker], [["zeros"]])
    with pytest.raises(BenchmarkError, match="0 of 4 chunks were read"):
        read_together([worker], [["absent"]])
