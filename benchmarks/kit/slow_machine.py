"""One device that is filled at full speed, and then read as slowly as a measurement wants."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from benchmarks.kit.daemon_process import (
    DaemonOptions,
    DaemonProcess,
    check_available,
    served,
)
from kvstored_client import Client


class SlowDevice:
    """A daemon on a limited device, and a client of it."""

    def __init__(self, daemon: DaemonProcess, client: Client) -> None:
        self.client = client
        self.daemon = daemon
        self._is_fresh = True

    def forget(self) -> None:
        """Restarts the daemon: nothing is in its DRAM, and nothing counts as read before.

        Only the first call, after its start, has nothing to do.
        """
        if self._is_fresh:
            self._is_fresh = False
            return
        self.daemon.restart()
        check_available(self.client)
        if self.daemon.options.split is not None:
            self.daemon.options.split.place()


class SlowMachine:
    """A device and its daemons. Not thread-safe.

    ``saving`` describes the daemon that saves. The one that restores has room for a slab or a few
    in DRAM, so that restorations come from the device. Clients are called ``name``.
    """

    def __init__(self, saving: DaemonOptions, *, restoring_dram_bytes: int, name: str) -> None:
        self._saving = saving
        self._restoring_dram_bytes = restoring_dram_bytes
        self._name = name

    @contextmanager
    def saving(self) -> Iterator[Client]:
        """A client of a daemon on a new device, with room in DRAM and at full speed."""
        with served(self._saving, name=self._name) as (_, client):
            yield client

    @contextmanager
    def restoring(
        self, bytes_per_s: float, *, run_module: str = "kvstored", depth: int | None = None
    ) -> Iterator[SlowDevice]:
        """The device that was saved on, served at that rate by ``run_module``.

        ``depth`` is how many transfers are in flight at once; None is the daemon's own.
        """
        options = replace(
            self._saving,
            dram_bytes=self._restoring_dram_bytes,
            device_bytes_per_s_max=int(bytes_per_s),
            depth_per_device=depth,
            run_module=run_module,
            is_formatted=True,
        )
        with served(options, name=self._name) as (daemon, client):
            yield SlowDevice(daemon, client)
