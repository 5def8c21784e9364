"""Devices are reserved when they are formatted: nobody else can fill them up.

ENOSPC at every write all the same is a device error: ``tests/faults/flush``. Fails when

* ``kvstored.io.file_device._allocate`` does not reserve (seen: puts were refused with
  STORE_FULL, because both devices had failed).
"""

from pathlib import Path

import pytest

from kvstored_client import Client, Reason
from tests.faults.flush.chunks import put_many, readable
from tests.faults.flush.lab import ARENA, check_is_clean
from tests.faults.full.file_system import SmallFileSystem, obstacle
from tests.support.daemon import MIB, DaemonProcess, Overrides
from tests.support.sharing import LOOP_DEVICES

pytestmark = [
    LOOP_DEVICES,
    pytest.mark.skipif(obstacle() is not None, reason=str(obstacle())),
]

DEVICE_BYTES = 10 * MIB
BATCH = 32
PUTS = 1024
"""About twice what the devices hold, so that every extent is written."""


def test_puts_go_on_when_the_file_system_is_full(tmp_path: Path) -> None:
    store = {"device_bytes": DEVICE_BYTES, "slab_bytes": 4 * MIB, "index_map_bytes": 16 * MIB}
    with SmallFileSystem(tmp_path / "lab", 40 * MIB) as small:
        devices = [str(small.path / f"device{index}") for index in range(2)]
        overrides: Overrides = {
            "store": {**store, "devices": devices},
            "dram": {"capacity_bytes": 8 * MIB},
        }
        folder = tmp_path / "store"
        folder.mkdir()
        daemon = DaemonProcess(folder, overrides=overrides)
        try:
            daemon.format()
            small.fill()
            with pytest.raises(OSError, match="No space left"):
                (small.path / "one-more").write_bytes(bytes(MIB))
            daemon.start()
            with Client(daemon.socket_path, arena_bytes=ARENA) as client:
                for start in range(0, PUTS, BATCH):
                    reasons = put_many(client, range(start, start + BATCH))
                    assert set(reasons) == {Reason.UNSPECIFIED}
                stats = client.admin.stats()
                newest = list(range(PUTS - BATCH, PUTS))
                assert readable(client, newest) == newest
            assert stats.counters["evicted_chunks"] > 0
            assert not any(device.failed for device in stats.devices)
            assert daemon.terminate() == 0
            check_is_clean(daemon)
        finally:
            daemon.close()
