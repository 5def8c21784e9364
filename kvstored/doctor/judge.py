"""What is right, slow or wrong about a machine for a configuration. Pure."""

import re
from collections import Counter
from collections.abc import Iterator

from kvstored.doctor.facts import DevicePlace, Facts, FolderPlace, MachineFacts, PlaceKind
from kvstored.doctor.finding import Finding, good, note, wrong
from kvstored.doctor.needs import IoUringNeed, Needs
from kvstored_contract.limits import ALIGNMENT_BYTES

KERNEL_LEAST = (5, 14)
"""Older ones cannot make memory resident in one call."""
_GIB = 1024**3


def judge(facts: Facts, needs: Needs) -> list[Finding]:
    """All findings, in the order in which a start of the daemon would meet them."""
    findings = [
        *_system(facts.machine, needs),
        *_memory(facts.machine, needs, is_serving=facts.is_serving),
        *_index(facts.index, needs),
    ]
    new = Counter(one.file_system for one in facts.devices if one.kind is PlaceKind.ABSENT)
    for device in facts.devices:
        findings += _device(device, needs, new_count=new[device.file_system])
    findings += _shared_drives(facts.devices)
    for folder in facts.sockets:
        findings.append(_socket(folder))
    return findings


def _system(machine: MachineFacts, needs: Needs) -> Iterator[Finding]:
    numbers = re.match(r"(\d+)\.(\d+)", machine.kernel_release)
    version = None if numbers is None else (int(numbers[1]), int(numbers[2]))
    least = ".".join(map(str, KERNEL_LEAST))
    if version is not None and version < KERNEL_LEAST:
        yield wrong(
            "kernel", f"Linux {machine.kernel_release} is too old", f"use Linux {least} or newer"
        )
    else:
        yield good("kernel", f"Linux {machine.kernel_release}")
    yield _io_uring(machine.io_uring_error, needs.io_uring)
    if machine.open_files_max < needs.open_files:
        yield note(
            "open files",
            f"the limit of {machine.open_files_max} is less than all sessions could take "
            f"({needs.open_files})",
            "raise LimitNOFILE, or lower server.sessions_max",
        )
    else:
        yield good("open files", f"up to {machine.open_files_max}")
    if machine.is_clock_set is False:
        yield note(
            "clock",
            "nothing keeps it right: times in logs, and that of the last scrub, may be wrong",
            "run chrony or systemd-timesyncd",
        )
    elif machine.is_clock_set:
        yield good("clock", "is kept right")


def _io_uring(error: str | None, need: IoUringNeed) -> Finding:
    if need is IoUringNeed.NONE:
        return good("io_uring", "is not used: io.engine is threads")
    if error is None:
        return good("io_uring", "works")
    says = f"the system refuses it ({error})"
    if need is IoUringNeed.REQUIRED:
        return wrong("io_uring", says, "allow it (kernel.io_uring_disabled), or use io.engine auto")
    return note(
        "io_uring",
        f"{says}; threads serve the devices, which takes more of the CPU",
        "set kernel.io_uring_disabled to 0, and allow its calls in a container's seccomp profile",
    )


def _memory(machine: MachineFacts, needs: Needs, *, is_serving: bool) -> Iterator[Finding]:
    dram = _gib(needs.dram_bytes)
    room = machine.group_room_bytes
    if is_serving:
        yield good("memory", "the daemon runs, and has what it reserved")
    elif needs.dram_bytes > machine.physical_bytes:
        yield wrong(
            "memory",
            f"dram.capacity_bytes ({dram}) is more than this machine has "
            f"({_gib(machine.physical_bytes)})",
            "lower dram.capacity_bytes",
        )
    elif room is not None and needs.dram_bytes > room:
        yield wrong(
            "memory",
            f"dram.capacity_bytes ({dram}) is more than the control group still grants "
            f"({_gib(room)})",
            "lower dram.capacity_bytes, or raise MemoryMax",
        )
    elif needs.dram_bytes > machine.available_bytes:
        yield note(
            "memory",
            f"dram.capacity_bytes ({dram}) is more than is free now "
            f"({_gib(machine.available_bytes)})",
            "lower dram.capacity_bytes, or end what else takes memory",
        )
    else:
        yield good("memory", f"{_gib(machine.available_bytes)} free for {dram} of the DRAM tier")
    pool = _gib(machine.huge_page_pool_bytes)
    if machine.huge_page_pool_bytes < needs.arenas_bytes:
        yield note(
            "huge pages",
            f"{pool} for arenas of up to {_gib(needs.arenas_bytes)}; the others lie on pages of "
            "4 KiB, and a read takes one copy more",
            "raise vm.nr_overcommit_hugepages (docs/install.md)",
        )
    else:
        yield good("huge pages", f"{pool} for arenas")


def _index(folder: FolderPlace, needs: Needs) -> Iterator[Finding]:
    subject = f"index in {folder.path}"
    if not folder.is_writable:
        yield wrong(
            subject, "cannot be written", "give it to the daemon's user, or change store.index"
        )
    elif folder.is_in_memory:
        yield wrong(
            subject,
            "lies in memory: after a power loss all sequences are gone",
            "change store.index to a folder on a drive",
        )
    elif folder.free_bytes < needs.index_bytes:
        yield note(
            subject,
            f"{_gib(folder.free_bytes)} are free, and it may grow to {_gib(needs.index_bytes)}; "
            "puts are refused when the drive is full",
            "free space, or lower store.index_map_bytes before the store is formatted",
        )
    else:
        yield good(subject, f"{_gib(folder.free_bytes)} free")


def _device(device: DevicePlace, needs: Needs, *, new_count: int) -> Iterator[Finding]:
    subject = f"{device.path}"
    obstacle = _obstacle(subject, device, needs, new_count)
    if obstacle is not None:
        yield obstacle
        return
    if device.kind is PlaceKind.ABSENT:
        yield note(
            subject,
            f"is not there yet; its file system has {_gib(device.free_bytes or 0)} free",
            "run kvstored format",
        )
    else:
        yield good(
            subject,
            f"{device.kind}, {_gib(device.size_bytes)}, transfers in multiples of "
            f"{device.alignment_bytes} bytes",
        )
    if device.is_rotational:
        yield note(
            subject, f"{device.drive} says that it rotates", "use NVMe, unless it only says so"
        )
    if device.write_cache == "write through":
        yield note(
            subject,
            f"the kernel sends {device.drive} no flushes (write cache: write through)",
            "nothing if the drive keeps its cache when the power fails; else write "
            f'"write back" to /sys/block/{device.drive}/queue/write_cache',
        )


def _obstacle(subject: str, device: DevicePlace, needs: Needs, new_count: int) -> Finding | None:
    """Why a device cannot be served; None where it can.

    ``new_count`` devices are to be made on its file system.
    """
    wanted = f"store.device_bytes ({_gib(needs.device_bytes)})"
    if device.kind is PlaceKind.OTHER:
        return wrong(
            subject, "is neither a file nor a block device", "change the path in store.devices"
        )
    if device.kind is PlaceKind.ABSENT and device.free_bytes is None:
        return wrong(
            subject, "its folder does not exist", "make it, or change the path in store.devices"
        )
    if not device.is_usable:
        return wrong(
            subject,
            "cannot be read and written",
            "give it to the daemon's user, or this user to its group (docs/install.md)",
        )
    if device.alignment_bytes is None or ALIGNMENT_BYTES % device.alignment_bytes:
        return wrong(
            subject,
            "cannot be read past the page cache (O_DIRECT) in pages of 4 KiB",
            "use ext4 or xfs, or a block device with sectors of at most 4 KiB",
        )
    if device.kind is PlaceKind.ABSENT and (device.free_bytes or 0) < (
        new_count * needs.device_bytes
    ):
        return wrong(
            subject,
            f"its file system has {_gib(device.free_bytes or 0)} free, less than {wanted} for "
            f"each of {new_count} new devices there",
            "free space, or lower store.device_bytes",
        )
    if device.kind is not PlaceKind.ABSENT and device.size_bytes < needs.device_bytes:
        return wrong(
            subject,
            f"has {_gib(device.size_bytes)}, less than {wanted}",
            "run kvstored format, or lower store.device_bytes",
        )
    return None


def _shared_drives(devices: tuple[DevicePlace, ...]) -> Iterator[Finding]:
    counts = Counter(device.drive for device in devices if device.drive)
    for drive, count in counts.items():
        if count > 1:
            yield note(
                f"drive {drive}",
                f"holds {count} devices; they are not faster together than one",
                "use one file or block device for each drive",
            )


def _socket(folder: FolderPlace) -> Finding:
    subject = f"sockets in {folder.path}"
    if not folder.is_writable:
        return wrong(
            subject, "cannot be written", "give it to the daemon's user, or change it in [server]"
        )
    return good(subject, "can be written")


def _gib(byte_count: int) -> str:
    return f"{byte_count / _GIB:.1f} GiB"
