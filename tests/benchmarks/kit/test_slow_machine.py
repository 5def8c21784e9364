"""A device that is saved on and then read at a rate."""

from pathlib import Path

from benchmarks.kit.daemon_process import DaemonOptions
from benchmarks.kit.slow_machine import SlowMachine
from benchmarks.workload import MIB
from tests.support.scale import Scale, at


@at(Scale.QUICK)
def test_what_was_saved_is_there_and_is_forgotten_by_the_daemon(tmp_path: Path) -> None:
    """The first call after a start has nothing to forget; the others begin another epoch."""
    options = DaemonOptions(
        folder=tmp_path,
        device_bytes=70 * MIB,
        dram_bytes=64 * MIB,
        arena_bytes_max=4 * MIB,
        device_count=1,
        slab_bytes=32 * MIB,
    )
    machine = SlowMachine(options, restoring_dram_bytes=32 * MIB, name="test")
    with machine.saving() as client:
        saving_epoch = client.epoch
    assert saving_epoch > 0
    with machine.restoring(1e9, depth=1) as device:
        first_epoch = device.client.epoch
        assert first_epoch > saving_epoch
        device.forget()
        assert device.client.epoch == first_epoch
        device.forget()
        assert device.client.epoch == first_epoch + 1
        assert "device_bytes_per_s_max = 1000000000" in device.daemon.options.document()
