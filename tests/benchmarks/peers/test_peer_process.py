import sys
from pathlib import Path

import pytest

from benchmarks.benchmark import BenchmarkError
from benchmarks.peers.peer_process import PeerProcess
from benchmarks.peers.worker import Task
from benchmarks.workload import MIB

SCRIPTED = Path(__file__).with_name("scripted_worker.py")
TASK = Task(path="nowhere", chunk_count=2, chunk_bytes=MIB, seed=1)


def start(tmp_path: Path, worker: Path = SCRIPTED) -> PeerProcess:
    return PeerProcess(Path(sys.executable), TASK, log=tmp_path / "log", worker=worker)


def test_puts_and_reads_are_timed_by_the_peer_itself(tmp_path: Path) -> None:
    with start(tmp_path) as peer:
        assert peer.description == "a dict"
        on_media_s, findable_s = peer.put(0)
        assert 0 < on_media_s < findable_s
        assert peer.get(0) > 0
    assert (tmp_path / "log").read_text() == "peers print what they like\n"


def test_a_failure_has_the_workers_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(BenchmarkError, match="the peer failed: KeyError: 0"),
        start(tmp_path) as peer,
    ):
        peer.get(0)


def test_a_peer_that_ends_is_told_by_its_last_line(tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("import sys\nsys.exit('first\\nno such module')\n")
    with pytest.raises(BenchmarkError, match="has ended: no such module"):
        start(tmp_path, worker)
    worker.write_text("")
    with pytest.raises(BenchmarkError, match="has ended: it said nothing"):
        start(tmp_path, worker)


def test_an_interpreter_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="no-python cannot be started"):
        PeerProcess(tmp_path / "no-python", TASK, log=tmp_path / "log")
