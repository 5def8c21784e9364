import os
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.benchmark import BenchmarkError
from benchmarks.kit.daemon_process import DaemonOptions, DaemonProcess
from benchmarks.workload import MIB
from kvstored_client import Client


@pytest.fixture(autouse=True)
def _daemons_are_forked() -> None:
    """Not here: these tests are about the commands."""


def options(folder: Path) -> DaemonOptions:
    return DaemonOptions(
        folder=folder,
        device_bytes=130 * MIB,
        dram_bytes=64 * MIB,
        arena_bytes_max=4 * MIB,
        device_count=3,
        slab_bytes=32 * MIB,
    )


def test_the_configuration_names_every_device(tmp_path: Path) -> None:
    document = tomllib.loads(options(tmp_path).document())
    assert document["store"]["devices"] == ["device0", "device1", "device2"]
    assert document["dram"]["capacity_bytes"] == 64 * MIB
    assert document["store"]["slab_bytes"] == 32 * MIB
    assert document["io"] == {}
    limited = replace(options(tmp_path), device_bytes_per_s_max=1000)
    assert tomllib.loads(limited.document())["io"] == {"device_bytes_per_s_max": 1000}
    shallow = replace(options(tmp_path), depth_per_device=1)
    assert tomllib.loads(shallow.document())["io"] == {"depth_per_device": 1}


def test_it_serves_restarts_and_stops(tmp_path: Path) -> None:
    with DaemonProcess(options(tmp_path)) as daemon:
        first_pid = daemon.pid
        with Client(daemon.options.socket, arena_bytes=MIB, strict=True) as client:
            assert client.available()
            first_epoch = client.epoch
        daemon.restart()
        assert daemon.pid != first_pid
        assert daemon.cpu_s() > 0
        with Client(daemon.options.socket, arena_bytes=MIB, strict=True) as client:
            assert client.available()
            assert client.epoch == first_epoch + 1
        last_pid = daemon.pid
    with pytest.raises(ProcessLookupError):
        os.kill(last_pid, 0)


def test_a_daemon_that_cannot_start_is_reported_with_its_log(tmp_path: Path) -> None:
    daemon = DaemonProcess(options(tmp_path))
    daemon.format()
    daemon.options.config.write_text("[store]\nsurprise = 1\n")
    with pytest.raises(
        BenchmarkError,
        match=r"before it was ready; its log ends with:\n[\s\S]*store.devices is missing",
    ):
        daemon.start()
    daemon._clean_up()


def test_devices_that_cannot_be_formatted_are_reported(tmp_path: Path) -> None:
    (tmp_path / "device1").mkdir()
    daemon = DaemonProcess(options(tmp_path))
    with pytest.raises(BenchmarkError, match="kvstored format ended with status"), daemon:
        pass
    assert not daemon.options.sockets.exists()
