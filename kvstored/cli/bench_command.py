"""``kvstored bench``: what the places of the devices can do through the I/O engine.

Writes and reads a scratch file beside each device and removes it: the devices
themselves are not touched, and a daemon may run meanwhile.
"""

import argparse
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kvstored.cli.errors import CommandError
from kvstored.cli.options import add_json_option
from kvstored.cli.output import Report, progress_bar, write_report
from kvstored.cli.sizes import parsed_bytes
from kvstored.config import Config, load_config
from kvstored.io.device import Device, DeviceError
from kvstored.io.engine import IoRequest, Operation
from kvstored.io.file_device import FileDevice, reserve
from kvstored.io.memory import ScratchPool
from kvstored.io.open_engine import EngineKind, open_engine

DEFAULT_BYTES = "512MiB"
_SCRATCH_SUFFIX = ".bench"
_GB = 1e9


def add_options(verb: argparse.ArgumentParser) -> None:
    """Adds what only this verb takes to its command line."""
    verb.add_argument(
        "--bytes",
        default=DEFAULT_BYTES,
        help="size of the scratch file beside each device (default: %(default)s)",
    )
    add_json_option(verb)


def run(options: argparse.Namespace) -> int:
    """Sequential writes with a flush, then reads of the same bytes."""
    config = load_config(options.config)
    request_bytes = int(config.io.read_bytes_max)
    request_count = (
        parsed_bytes("--bytes", options.bytes, wanted="a size such as 512MiB") // request_bytes
    )
    if request_count == 0:
        raise CommandError(f"--bytes must be at least io.read_bytes_max ({request_bytes})")
    with (
        progress_bar("measuring") as progress,
        scratch_devices(config, request_count * request_bytes) as devices,
    ):
        bench = EngineBench(devices, depth=config.io.depth_per_device, request_bytes=request_bytes)
        total = 2 * request_count * len(devices)
        write_s = bench.transfer(Operation.WRITE, request_count, lambda done: progress(done, total))
        read_s = bench.transfer(
            Operation.READ, request_count, lambda done: progress(total // 2 + done, total)
        )
        bench.close()
    total_bytes = request_count * request_bytes * len(devices)
    report = Report(
        title=f"{len(devices)} scratch files, {config.io.depth_per_device} requests in flight each",
        values={
            "request_bytes": request_bytes,
            "total_bytes": total_bytes,
            "write_gb_per_s": round(total_bytes / write_s / _GB, 3),
            "read_gb_per_s": round(total_bytes / read_s / _GB, 3),
        },
    )
    write_report(report, as_json=options.json)
    return 0


@contextmanager
def scratch_devices(config: Config, byte_count: int) -> Iterator[tuple[Device, ...]]:
    """Reserved files beside the devices, removed in the end; raises CommandError."""
    with ExitStack() as stack:
        devices = []
        for device in config.store.devices:
            if device.is_block_device():
                raise CommandError(
                    f"{device} is a block device and has no place beside it for a scratch file; "
                    "measure block devices with fio before they are formatted"
                )
            path = Path(f"{device}{_SCRATCH_SUFFIX}")
            if path.exists():
                raise CommandError(f"{path} exists; remove it, or let the other bench finish")
            stack.callback(path.unlink, missing_ok=True)
            reserve(path, byte_count, lambda _: None)
            devices.append(FileDevice.open(path))
            stack.callback(devices[-1].close)
        yield tuple(devices)


class EngineBench:
    """Drives all devices at full depth with requests of one size."""

    def __init__(self, devices: Sequence[Device], *, depth: int, request_bytes: int) -> None:
        self._devices = devices
        self._request_bytes = request_bytes
        self._engine = open_engine(devices, kind=EngineKind.AUTO, depth=depth)
        self._pool = ScratchPool(request_bytes, depth * len(devices))
        self._errors: list[DeviceError] = []
        self._done_count = 0
        self._done = threading.Condition()

    def transfer(
        self, operation: Operation, request_count: int, progress: Callable[[int], None]
    ) -> float:
        """Transfers ``request_count`` requests on each device; returns seconds.

        Writes end with a flush of every device. Raises the first DeviceError.
        """
        self._done_count = 0
        started_at = time.perf_counter()
        for index in range(request_count):
            for device_index in range(len(self._devices)):
                self._submit(operation, device_index, index * self._request_bytes)
            progress(self._done_count)
        with self._done:
            self._done.wait_for(lambda: self._done_count == request_count * len(self._devices))
        if operation is Operation.WRITE:
            for device in self._devices:
                device.flush()
        if self._errors:
            raise self._errors[0]
        return time.perf_counter() - started_at

    def close(self) -> None:
        """Ends the engine's threads."""
        self._engine.close()
        self._pool.close()

    def _submit(self, operation: Operation, device_index: int, offset: int) -> None:
        buffer = self._pool.acquire()

        def done(error: DeviceError | None) -> None:
            self._pool.release(buffer)
            with self._done:
                if error is not None:
                    self._errors.append(error)
                self._done_count += 1
                self._done.notify()

        self._engine.submit(
            IoRequest(
                device_index=device_index,
                operation=operation,
                buffers=(buffer,),
                offset=offset,
                done=done,
            )
        )
