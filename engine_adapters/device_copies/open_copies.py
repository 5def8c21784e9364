"""Which copies a device gets."""

import torch

from engine_adapters.device_copies.copies import DeviceCopies
from engine_adapters.device_copies.cuda_copies import CudaCopies
from engine_adapters.device_copies.host_copies import HostCopies

GATHERED_BYTES = 1 << 22
"""PCIe takes a tenth of a millisecond for so many, and the engine's thread takes about as long to
launch a copy."""
GATHERED_STEPS = 8
"""Steps of a decoding batch that go together: what a step costs the engine's thread besides its
layers is an eighth then, and what is not saved when an engine dies is little."""


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


def gathered_bytes(device: torch.device) -> int:
    """Small copies from the device are to be gathered until they have so many; 0: they need not."""
    return GATHERED_BYTES if device.type == "cuda" else 0


def gathered_steps(device: torch.device) -> int:
    """So many steps with a token for each sequence are to be copied together; 1: each alone."""
    return GATHERED_STEPS if device.type == "cuda" else 1
