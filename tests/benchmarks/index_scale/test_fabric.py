"""A fabricated store is one that the daemon's own tools take for sound."""

import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks.index_scale import fabric as fabric_module
from benchmarks.index_scale.asked import resident_gib
from benchmarks.index_scale.fabric import INDEX_MAP_BYTES, Fabric
from kvstored.store.check.check_report import ProblemKind
from kvstored.store.check.offline_check import check_store
from kvstored.store.index.index import Index
from kvstored.store.space.device_set import open_device_set
from kvstored.store.start.rebuild import rebuild_index
from kvstored.store.start.recover import recover

COUNT = 1001


@pytest.fixture
def fabric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fabric:
    monkeypatch.setattr(fabric_module, "_TRANSACTION_RECORDS", 100)
    made = Fabric(folder=tmp_path, chunk_count=COUNT, seed=3)
    made.make_devices()
    return made


def test_every_record_is_there_and_has_an_extent_of_its_own(fabric: Fabric) -> None:
    keys = fabric.keys()
    fabric.make_index(keys)
    device_set = open_device_set(fabric.devices)
    index = Index.open(fabric.index, map_bytes=INDEX_MAP_BYTES)
    try:
        recovered = recover(index, device_set)
        assert (len(recovered.table), recovered.dropped_count) == (COUNT, 0)
        assert recovered.next_stamp == COUNT + 1
        found = {chunk.key for chunk, _ in index.walks.records()}
        assert found == {key.tobytes() for key in keys}
    finally:
        index.close()
        device_set.close()


def test_written_extents_are_rebuilt_and_verified(fabric: Fabric) -> None:
    fabric.write_extents(fabric.keys())
    device_set = open_device_set(fabric.devices)
    index = Index.open(fabric.index, map_bytes=INDEX_MAP_BYTES)
    try:
        rebuilt = rebuild_index(device_set, index, lambda done, total: None)
        assert rebuilt.chunk_count == COUNT
        report = check_store(index, device_set, lambda done, total: None)
        assert report.chunk_count == COUNT
        kinds = {problem.kind for problem in report.problems}
        assert kinds <= {ProblemKind.SUPERBLOCK}
    finally:
        index.close()
        device_set.close()


def test_keys_are_those_of_the_seed(fabric: Fabric) -> None:
    assert np.array_equal(fabric.keys(), fabric.keys())
    assert len(np.unique(fabric.keys(), axis=0)) == COUNT


def test_memory_of_this_process(tmp_path: Path) -> None:

    assert 0.005 < resident_gib(os.getpid()) < 100
