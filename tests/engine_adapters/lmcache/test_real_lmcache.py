"""LMCache itself over a real daemon: ``make test-lmcache``."""

import importlib.util
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon import DaemonProcess
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.lmcache,
    pytest.mark.skipif(
        importlib.util.find_spec("lmcache") is None, reason="needs LMCache: make test-lmcache"
    ),
]

MIB = 1024 * 1024
OBJECTS = 12
SHAPE = (2, 4, 256, 64)
"""Of an object: keys and values of 256 tokens in 4 layers, 256 KiB in bfloat16."""
ENVIRONMENT = {"LMCACHE_TRACK_USAGE": "false", "LMCACHE_DISABLE_BANNER": "1"}
"""LMCache tells its makers how it is used, unless it is asked not to."""
os.environ.update(ENVIRONMENT)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path) as process:
        yield process


def adapter(daemon: DaemonProcess) -> dict[str, Any]:
    """As docs/engines.md says it."""
    return {
        "type": "native_plugin",
        "module_path": "engine_adapters.lmcache",
        "class_name": "Connector",
        "adapter_params": {"socket": str(daemon.socket_path), "arena_bytes": "64MiB"},
    }


def test_its_own_bench_verifies_what_it_loads(daemon: DaemonProcess) -> None:
    options = ["--num-keys", "8", "--data-size-kb", "300", "--rounds", "2", "--warmup-rounds", "0"]
    ran = subprocess.run(
        [
            *(str(Path(sys.executable).with_name("lmcache")), "bench", "l2"),
            *("--l2-adapter", json.dumps(adapter(daemon)), *options),
            *("--lookup-max-hit-rate", "1", "--no-skip-verify"),
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    said = ran.stdout + ran.stderr
    assert said.count("All 8 keys data verified OK") == 1, said
    assert said.count("Total success:                                                16") == 3, said


class Manager:
    """LMCache's storage manager: 16 MiB of memory, with our connector below it."""

    def __init__(self, daemon: DaemonProcess) -> None:
        import torch
        from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
        from lmcache.v1.distributed.config import (
            EvictionConfig,
            L1ManagerConfig,
            L1MemoryManagerConfig,
            StorageManagerConfig,
        )
        from lmcache.v1.distributed.l2_adapters.config import L2AdaptersConfig
        from lmcache.v1.distributed.l2_adapters.native_plugin_l2_adapter import (
            NativePluginL2AdapterConfig,
        )
        from lmcache.v1.distributed.storage_manager import StorageManager

        self.layout = MemoryLayoutDesc([torch.Size(SHAPE)], [torch.bfloat16])
        self.keys = [ObjectKey(bytes([number]) * 32, "model", 0) for number in range(OBJECTS)]
        memory = L1MemoryManagerConfig(16 * MIB, use_lazy=False, shm_name="")
        plugin = NativePluginL2AdapterConfig.from_dict(adapter(daemon))
        self.manager = StorageManager(
            StorageManagerConfig(
                L1ManagerConfig(memory),
                EvictionConfig("LRU"),
                L2AdaptersConfig([plugin]),
            )
        )

    def write(self, seed: int) -> list[Any]:
        """Objects of random numbers, written and stored below; what they were."""
        import torch

        generator = torch.Generator().manual_seed(seed)
        reserved = self.manager.reserve_write(self.keys, self.layout)
        assert len(reserved) == OBJECTS
        written = []
        for key in self.keys:
            values = torch.rand(SHAPE, generator=generator).to(torch.bfloat16)
            reserved[key].tensor.copy_(values)
            written.append(values)
        self.manager.finish_write(self.keys)
        (each,) = self.manager.l2_adapters()
        wait_until(lambda: each[1].get_usage().total_bytes_used == OBJECTS * values.nbytes)
        return written

    def forget(self) -> None:
        """Nothing is left in LMCache's memory."""

        def is_empty() -> bool:
            self.manager.clear()
            used, _ = self.manager.get_l1_usage()
            return used == 0

        wait_until(is_empty)

    def prefetched(self) -> list[Any]:
        """What comes back from below, as long as it is a prefix of all."""
        from lmcache.v1.distributed.api import GroupedObjectKeys, PrefetchTaskSpec

        handle = self.manager.submit_prefetch_task(
            PrefetchTaskSpec([GroupedObjectKeys(self.keys, 0, self.layout)])
        )
        assert self.manager.wait_prefetch_status(handle, 100)
        result = self.manager.query_prefetch_status(handle)
        count = result.hit_cells[0].popcount()
        keys = self.keys[:count]
        assert [result.hit_cells[0].test(place) for place in range(count)] == [True] * count
        with self.manager.read_prefetched_results(keys) as objects:
            values = [each.tensor.clone() for each in objects or []]
        self.manager.finish_read_prefetched(keys)
        return values

    def close(self) -> None:
        self.manager.close()


@pytest.fixture
def manager(daemon: DaemonProcess) -> Iterator[Manager]:
    manager = Manager(daemon)
    yield manager
    manager.close()


def are_equal(found: list[Any], written: list[Any]) -> bool:
    import torch

    pairs = zip(found, written, strict=True)
    return all(torch.equal(one.reshape(SHAPE), other) for one, other in pairs)


def test_what_left_its_memory_comes_back(manager: Manager) -> None:
    written = manager.write(1)
    manager.forget()
    found = manager.prefetched()
    assert len(found) == OBJECTS
    assert are_equal(found, written)
    assert manager.manager.memcheck()


def test_another_process_finds_it_after_a_restart(manager: Manager, daemon: DaemonProcess) -> None:
    written = manager.write(2)
    assert daemon.terminate() == 0
    daemon.start()
    other = Manager(daemon)
    assert are_equal(other.prefetched(), written)
    other.close()


def test_a_daemon_that_was_killed_is_a_miss(manager: Manager, daemon: DaemonProcess) -> None:
    manager.write(3)
    manager.forget()
    daemon.kill()
    assert manager.prefetched() == []
    daemon.start()
    # What was durable by then is there again; it is never other bytes.
    manager.write(4)


def test_a_flipped_byte_is_a_miss(manager: Manager, daemon: DaemonProcess) -> None:
    written = manager.write(5)
    manager.forget()
    assert daemon.terminate() == 0
    damaged = random.Random(5).randrange(2, OBJECTS)
    flip(daemon, written[damaged])
    daemon.start()
    found = manager.prefetched()
    assert len(found) == damaged
    assert are_equal(found, written[:damaged])


def flip(daemon: DaemonProcess, values: Any) -> None:
    """Changes one bit in the middle of an object on its device."""
    import torch

    payload = values.view(torch.uint8).numpy().tobytes()
    middle = len(payload) // 2
    for path in daemon.devices:
        place = path.read_bytes().find(payload[middle : middle + 512])
        if place >= 0:
            with path.open("r+b") as file:
                file.seek(place)
                file.write(bytes([payload[middle] ^ 1]))
            return
    pytest.fail("no device has the object")
