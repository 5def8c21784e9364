"""Which copies a device gets."""

import torch

from engine_adapters.device_copies.copies import DeviceCopies
from engine_adapters.device_copies.cuda_copies import CudaCopies
from engine_adapters.device_copies.host_copies import HostCopies


class UnknownDeviceError(ValueError):
    """Memory that there is no way to; the message names the device."""


def open_copies(device: torch.device) -> DeviceCopies:
    """The way to ``device``; raises UnknownDeviceError."""
    if device.type == "cpu":
        return HostCopies()
    if device.type == "cuda":
        return CudaCopies(device)
    raise UnknownDeviceError(
        f"there is no way to copy to {device}: only memory of CPUs and of CUDA has one"
    )
