"""The device that a run measures, and the room that it has there."""

import gc
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.benchmark import BenchmarkError
from benchmarks.gpu.layer_fit import Room

DEVICE_SHARE, HOST_SHARE, SCRATCH_SHARE = 0.85, 0.5, 0.8
"""Of what is free: others may need some as well."""


class NoDeviceError(BenchmarkError):
    """There is nothing to measure on; one sentence."""

    exit_status = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDevice:
    """What computes: its name for people, and torch's."""

    device: torch.device
    name: str

    @property
    def is_cpu(self) -> bool:
        """Whether this is a rehearsal."""
        return self.device.type == "cpu"


def chosen_device(asked: str | None) -> MeasuredDevice:
    """``cuda`` unless ``cpu`` was asked for; raises NoDeviceError."""
    if asked == "cpu":
        return MeasuredDevice(device=torch.device("cpu"), name="CPU")
    if not torch.cuda.is_available():
        raise NoDeviceError(
            "this machine has no GPU that PyTorch can use; --device cpu rehearses with small sizes"
        )
    device = torch.device("cuda", torch.cuda.current_device())
    return MeasuredDevice(device=device, name=torch.cuda.get_device_name(device))


def room_of(measured: MeasuredDevice, folder: Path, *, saved_bytes: int) -> Room:
    """What is free now on the device, the host and the file system of ``folder``."""
    host_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    if measured.is_cpu:
        device_bytes = host_bytes
    else:
        # What PyTorch keeps of a model that is gone counts as used.
        gc.collect()
        torch.cuda.empty_cache()
        device_bytes, _ = torch.cuda.mem_get_info(measured.device)
    return Room(
        device_bytes=int(DEVICE_SHARE * device_bytes),
        host_bytes=int(HOST_SHARE * host_bytes),
        scratch_bytes=int(SCRATCH_SHARE * shutil.disk_usage(folder).free),
        saved_bytes=saved_bytes,
    )
