"""A block device that dies: only its chunks are misses, new ones go to the others.

The device is a loop device over a file in an ext4 that is shut down: every later read,
write and flush of it fails, as with a drive that is gone. Fails when

* ``DeviceFailures.write_failed`` never calls a device gone (seen: every put to it was refused,
  since a write that fails is never flushed);
* ``open_device_set`` names no remedy (seen: the sentence ended with the error of the system).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstored.store.write.device_failures import WRITE_ERRORS_MAX
from kvstored_client import Client, Reason
from tests.faults.flush.chunks import put, readable
from tests.faults.flush.lab import ARENA, check_is_clean, failed_devices
from tests.faults.full.file_system import BlockDevice, obstacle
from tests.support.daemon import MIB, DaemonProcess
from tests.support.scale import Scale, at
from tests.support.sharing import LOOP_DEVICES

pytestmark = [
    LOOP_DEVICES,
    pytest.mark.skipif(obstacle() is not None, reason=str(obstacle())),
]

DEVICE_BYTES = 33 * MIB
DEADLINE_MS = 60_000
STORED = range(12)
NEW = range(100, 112)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[BlockDevice]:
    folder = tmp_path / "store"
    folder.mkdir()
    with BlockDevice(tmp_path / "lab", folder / "device0", DEVICE_BYTES) as device:
        yield device


@pytest.fixture
def daemon(tmp_path: Path, device: BlockDevice) -> Iterator[DaemonProcess]:
    """A daemon whose first device is the one that dies."""
    store = {"device_bytes": DEVICE_BYTES, "slab_bytes": 4 * MIB, "index_map_bytes": 16 * MIB}
    overrides = {"store": store, "dram": {"capacity_bytes": 16 * MIB}}
    with DaemonProcess(tmp_path / "store", overrides=overrides) as daemon:
        yield daemon


def test_a_block_device_that_is_gone(daemon: DaemonProcess, device: BlockDevice) -> None:
    serve_without(daemon, device)


@at(Scale.QUICK)
def test_a_block_device_that_comes_back(daemon: DaemonProcess, device: BlockDevice) -> None:
    """Without it the daemon does not start; with it everything is there."""
    acked = serve_without(daemon, device)
    daemon.kill()
    check_refusal(daemon)
    device.detach()
    check_refusal(daemon)
    device.attach()
    daemon.start()
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        found = readable(client, [*STORED, *acked])
    assert found == [*STORED, *acked]
    assert daemon.terminate() == 0
    check_is_clean(daemon)


def serve_without(daemon: DaemonProcess, device: BlockDevice) -> list[int]:
    """The device dies while it is read: what was acknowledged afterwards."""
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        assert {put(client, number) for number in STORED} == {Reason.UNSPECIFIED}
    # A new daemon has nothing in DRAM.
    daemon.restart()
    others = [number for number in STORED if number % 2]
    with Client(daemon.socket_path, arena_bytes=ARENA) as client:
        assert readable(client, [0, 1]) == [0, 1]
        device.die()
        assert readable(client, STORED, timeout_ms=DEADLINE_MS) == others
        results = {number: put(client, number) for number in NEW}
        refused = [number for number, reason in results.items() if reason]
        assert {results[number] for number in refused} <= {Reason.DEVICE_FAILED}
        assert len(refused) <= WRITE_ERRORS_MAX
        assert failed_devices(client) == (True, False)
        acked = sorted(set(NEW) - set(refused))
        assert readable(client, acked) == acked
        assert readable(client, STORED, timeout_ms=DEADLINE_MS) == others
    return acked


def check_refusal(daemon: DaemonProcess) -> None:
    """Without the device the daemon does not start; one sentence names device and remedy."""
    result = daemon.run_verb("run")
    assert result.returncode == 2, result.stderr
    sentence = result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr
    assert sentence.startswith("kvstored run: cannot open the device set: ")
    assert str(daemon.devices[0]) in sentence
    assert "attach that device again" in sentence
