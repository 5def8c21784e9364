"""The devices of one store: formatting them, and opening exactly those that belong together."""

import errno
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kvstored.format.errors import FormatError
from kvstored.format.superblock import DATA_OFFSET, SUPERBLOCK_BYTES, Superblock
from kvstored.io.device import Device, DeviceError
from kvstored.io.file_device import DeviceBusyError, FileDevice, reserve
from kvstored.store.space.superblock_copies import (
    find_superblock,
    has_blank_ends,
    write_superblock,
)
from kvstored_contract.limits import ALIGNMENT_BYTES

ID_BYTES = 16
DEVICES_MAX = 1024
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
"""By the rights of a file, by the list of a service's devices, by what it sees as read-only."""


class DeviceSetError(ValueError):
    """These devices cannot be formatted or used; the message is one clear sentence."""


@dataclass(slots=True, kw_only=True)
class DeviceSet:
    """The opened devices of one set in their order, which placement depends on.

    Only ``advance_epoch`` changes it; the daemon calls it once before it serves.
    """

    set_id: bytes
    epoch: int
    slab_bytes: int
    devices: tuple[Device, ...]
    superblocks: tuple[Superblock, ...]

    @property
    def device_ids(self) -> tuple[bytes, ...]:
        """The 16-byte id of each device."""
        return tuple(superblock.device_id for superblock in self.superblocks)

    def advance_epoch(self) -> int:
        """Makes the next epoch durable on every device and returns it; raises DeviceError."""
        epoch = self.epoch + 1
        superblocks = tuple(replace(old, epoch=epoch) for old in self.superblocks)
        for device, superblock in zip(self.devices, superblocks, strict=True):
            write_superblock(device, superblock)
        self.superblocks = superblocks
        self.epoch = epoch
        return epoch

    def close(self) -> None:
        """Closes every device and releases its lock."""
        for device in self.devices:
            device.close()


def _unwrapped(device: Device) -> Device:
    return device


def open_device_set(
    paths: Sequence[Path | str],
    *,
    wrap: Callable[[Device], Device] = _unwrapped,
    readonly: bool = False,
) -> DeviceSet:
    """Opens and locks the devices of one set, given completely and in their order.

    ``wrap`` may put monitoring or faults around each device. A set whose epochs
    differ, because the last start was interrupted, has the highest of them. Raises
    DeviceSetError.
    """
    names = _distinct(paths)
    devices: list[Device] = []
    try:
        for name in names:
            devices.append(FileDevice.open(name, readonly=readonly))
            devices[-1] = wrap(devices[-1])
        superblocks = tuple(map(_superblock_of, devices))
        _check_membership(names, superblocks)
    except BaseException as error:
        for device in devices:
            device.close()
        if isinstance(error, DeviceBusyError):
            raise DeviceSetError(f"cannot open the device set: {error}") from error
        if isinstance(error, DeviceError):
            raise DeviceSetError(
                f"cannot open the device set: {error}; {_remedy(error)}"
            ) from error
        raise
    return DeviceSet(
        set_id=superblocks[0].set_id,
        epoch=max(superblock.epoch for superblock in superblocks),
        slab_bytes=superblocks[0].slab_bytes,
        devices=tuple(devices),
        superblocks=superblocks,
    )


def _remedy(error: DeviceError) -> str:
    """What to do where a device cannot be opened or read: it may be there and be forbidden."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else OSError()
    if cause.errno in _FORBIDDEN:
        return (
            "the daemon may not use it: give its user the right to, and name it in DeviceAllow= or "
            "ReadWritePaths= of the service (docs/install.md)"
        )
    loss = "replace it and format the set again, which loses what is on the others too"
    if cause.errno == errno.ENOENT and str(cause.filename).startswith("/dev/"):
        return (
            "attach that device again, or show it to the service with PrivateDevices=no "
            f"(docs/install.md), or {loss}"
        )
    return f"attach that device again, or {loss}"


def format_device_set(
    paths: Sequence[Path | str],
    *,
    device_bytes: int,
    slab_bytes: int,
    force: bool,
    progress: Callable[[int, int], None],
) -> bytes:
    """Reserves ``device_bytes`` on each of ``paths`` and makes them a new device set.

    A block device must have at least these bytes and is used whole. Returns the set's
    id. Refuses a path that holds anything but zeros before the first slab or in as much at its end,
    unless ``force``. ``progress`` gets the bytes reserved so far and those wanted in all.
    Raises DeviceSetError; files made until then are removed.
    """
    names = _distinct(paths)
    _check_sizes(device_bytes, slab_bytes)
    created = [Path(name) for name in names if not Path(name).exists()]
    try:
        for name in names:
            if not force and Path(name) not in created:
                _refuse_used(name)
        _reserve_all(names, device_bytes, progress)
        return _write_superblocks(names, slab_bytes)
    except BaseException as error:
        for path in created:
            path.unlink(missing_ok=True)
        if isinstance(error, DeviceError):
            raise DeviceSetError(f"cannot format: {error}") from error
        raise


def _reserve_all(
    names: Sequence[str], device_bytes: int, progress: Callable[[int, int], None]
) -> None:
    for index, name in enumerate(names):

        def report(reserved_bytes: int, before_bytes: int = index * device_bytes) -> None:
            progress(before_bytes + reserved_bytes, len(names) * device_bytes)

        reserve(name, device_bytes, report)


def _write_superblocks(names: Sequence[str], slab_bytes: int) -> bytes:
    set_id = secrets.token_bytes(ID_BYTES)
    for index, name in enumerate(names):
        device = FileDevice.open(name)
        try:
            superblock = Superblock(
                set_id=set_id,
                device_id=secrets.token_bytes(ID_BYTES),
                device_index=index,
                device_count=len(names),
                capacity_bytes=device.facts.capacity_bytes // SUPERBLOCK_BYTES * SUPERBLOCK_BYTES,
                slab_bytes=slab_bytes,
                epoch=0,
            )
            write_superblock(device, superblock)
        finally:
            device.close()
    return set_id


def _distinct(paths: Sequence[Path | str]) -> list[str]:
    names = [os.fspath(path) for path in paths]
    if not 1 <= len(names) <= DEVICES_MAX:
        raise DeviceSetError(f"a device set has 1 to {DEVICES_MAX} devices, not {len(names)}")
    if len({Path(name).resolve() for name in names}) != len(names):
        raise DeviceSetError(f"a device is named twice in {', '.join(names)}; name each once")
    return names


def _check_sizes(device_bytes: int, slab_bytes: int) -> None:
    if device_bytes % ALIGNMENT_BYTES or slab_bytes % ALIGNMENT_BYTES or slab_bytes < 1:
        raise DeviceSetError(
            f"device and slab size must be multiples of {ALIGNMENT_BYTES} bytes, "
            f"not {device_bytes} and {slab_bytes}"
        )
    least_bytes = DATA_OFFSET + slab_bytes + SUPERBLOCK_BYTES
    if device_bytes < least_bytes:
        raise DeviceSetError(
            f"a device with slabs of {slab_bytes} bytes needs at least {least_bytes} bytes, "
            f"not {device_bytes}"
        )


def _refuse_used(name: str) -> None:
    device = FileDevice.open(name, readonly=True)
    try:
        is_blank = has_blank_ends(device)
        unaligned = device.facts.capacity_bytes % SUPERBLOCK_BYTES
    finally:
        device.close()
    if unaligned or not is_blank:
        raise DeviceSetError(
            f"{name} holds a device of a set or other data; format it with force to lose that"
        )


def _superblock_of(device: Device) -> Superblock:
    try:
        superblock = find_superblock(device)
    except FormatError as error:
        raise DeviceSetError(
            f"{device.facts.name} is no device of this version of kvstored ({error}); "
            "format it or name another"
        ) from error
    if superblock.capacity_bytes > device.facts.capacity_bytes:
        raise DeviceSetError(
            f"{device.facts.name} was formatted with {superblock.capacity_bytes} bytes but has "
            f"{device.facts.capacity_bytes} now; restore or format it"
        )
    return superblock


def _check_membership(names: Sequence[str], superblocks: Sequence[Superblock]) -> None:
    first = superblocks[0]
    for index, (name, superblock) in enumerate(zip(names, superblocks, strict=True)):
        if superblock.set_id != first.set_id:
            raise DeviceSetError(
                f"{name} belongs to device set {superblock.set_id.hex()}, but {names[0]} to "
                f"{first.set_id.hex()}; name the devices of one set"
            )
        if superblock.device_count != len(names):
            raise DeviceSetError(
                f"{name} belongs to a set of {superblock.device_count} devices, but "
                f"{len(names)} are named; name all of them"
            )
        if superblock.device_index != index:
            raise DeviceSetError(
                f"{name} is device {superblock.device_index} of its set but is named as device "
                f"{index}; name the devices in the order in which they were formatted"
            )
