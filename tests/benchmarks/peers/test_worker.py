import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.peers.worker import Task, Worker, obey
from benchmarks.workload import MIB
from tests.benchmarks.peers.scripted_worker import MemoryPeer

TASK = Task(path="nowhere", chunk_count=3, chunk_bytes=2 * MIB, seed=7)


class Idle(MemoryPeer):
    """Says that it has read, and has not."""

    def get(self, keys: Sequence[int]) -> None:
        """Leaves the memory as it is."""


class Flipping(MemoryPeer):
    """Reads one bit wrongly: the last of the last chunk."""

    def get(self, keys: Sequence[int]) -> None:
        """All bytes but one are right."""
        super().get(keys)
        self.chunks[-1, -1] ^= 1


class Swapping(MemoryPeer):
    """Brings the chunks of the other sequence."""

    def get(self, keys: Sequence[int]) -> None:
        """The right bytes for another question."""
        super().get([key + len(keys) for key in keys])


def opened(kind: type[MemoryPeer] = MemoryPeer) -> tuple[Worker, MemoryPeer]:
    memory: NDArray[np.uint8] = np.zeros(TASK.sequence_bytes, np.uint8)
    peer = kind(TASK, memory)
    return Worker(TASK, memory, peer), peer


def answers_to(*requests: dict[str, Any], kind: type[MemoryPeer] = MemoryPeer) -> io.StringIO:
    answers = io.StringIO()
    lines = [json.dumps(asdict(TASK)), *map(json.dumps, requests)]
    try:
        obey(lines, answers, kind)
    except ValueError:
        assert "error" in answers.getvalue()
    return answers


def test_a_put_is_synced_before_the_checkpoint_that_is_told_apart() -> None:
    worker, peer = opened()
    took = worker.put(0)
    assert peer.calls == ["put", "sync", "checkpoint"]
    assert 0 < took["on_media_s"] < took["findable_s"]


def test_a_sequence_that_is_put_again_is_deleted_first() -> None:
    worker, peer = opened()
    worker.put(0)
    worker.put(1)
    assert "delete" not in peer.calls
    worker.put(1)
    assert sorted(peer.stored) == [*TASK.keys(0), *TASK.keys(1)]
    assert peer.calls.count("delete") == 1


def test_every_mib_of_every_sequence_is_another() -> None:
    worker, peer = opened()
    worker.put(0)
    worker.put(1)
    pieces = {row.tobytes() for chunk in peer.stored.values() for row in chunk.reshape(-1, MIB)}
    assert len(pieces) == 2 * TASK.sequence_bytes // MIB


def test_a_read_brings_its_own_sequence_after_another_was_put() -> None:
    worker, _ = opened()
    worker.put(0)
    worker.put(1)
    assert worker.get(0)["read_s"] > 0


@pytest.mark.parametrize("kind", [Idle, Flipping, Swapping])
def test_wrong_bytes_are_no_result(kind: type[MemoryPeer]) -> None:
    worker, _ = opened(kind)
    worker.put(1)
    worker.put(0)  # what is to be read lies in the memory already
    with pytest.raises(ValueError, match="wrong bytes"):
        worker.get(0)


def test_it_answers_line_by_line_until_something_fails() -> None:
    put, get = {"verb": "put", "sequence": 0}, {"verb": "get", "sequence": 0}
    lines = answers_to(put, get).getvalue().splitlines()
    assert json.loads(lines[0]) == {"result": "a dict"}
    assert [list(json.loads(line)["result"]) for line in lines[1:]] == [
        ["on_media_s", "findable_s"],
        ["read_s"],
    ]
    lines = answers_to(put, get, get, kind=Flipping).getvalue().splitlines()
    assert json.loads(lines[-1]) == {"error": "ValueError: wrong bytes were read"}
    assert len(lines) == 3
