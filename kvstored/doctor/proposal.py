"""A configuration that fits a machine, with a comment for each choice. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvstored.doctor.facts import DevicePlace, MachineFacts, PlaceKind

_MIB = 1024**2
_GIB = 1024**3
FREE_SHARE = 0.8
"""Part of a file system's free space that devices on it take together."""
MEMORY_SHARE = 0.25
"""Part of the free memory for the DRAM tier, and for the arenas of clients: the rest is the
engine's."""
SLAB_BYTES, LARGE_SLAB_BYTES = 65 * _MIB, 260 * _MIB
"""A little more than a multiple of the largest chunk, which comes with a header page."""
LARGE_DEVICE_BYTES = 100 * _GIB
DEVICE_BYTES_LEAST = 2 * SLAB_BYTES
ARENA_BYTES_MOST = 4 * _GIB
INDEX_BYTES_MOST = 16 * _GIB


class ProposalError(ValueError):
    """No configuration fits; one sentence names the thing and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What is chosen. ``device_bytes`` of each device; ``arenas_bytes`` of all clients together."""

    devices: tuple[Path, ...]
    index: Path
    device_bytes: int
    slab_bytes: int
    index_bytes: int
    dram_bytes: int
    arenas_bytes: int


def propose(
    machine: MachineFacts, devices: Sequence[DevicePlace], index: Path, *, index_free_bytes: int
) -> Proposal:
    """Sizes that this machine has; raises ProposalError where it has none."""
    device_bytes = _device_bytes(devices)
    rooms = [machine.available_bytes]
    if machine.group_room_bytes is not None:
        rooms.append(machine.group_room_bytes)
    memory_bytes = _rounded(int(MEMORY_SHARE * min(rooms)))
    slab_bytes = LARGE_SLAB_BYTES if device_bytes >= LARGE_DEVICE_BYTES else SLAB_BYTES
    if memory_bytes < slab_bytes:
        raise ProposalError(
            f"{min(rooms) / _MIB:.0f} MiB of memory are free, and a DRAM tier needs four times "
            f"{slab_bytes / _MIB:.0f} MiB; end what else takes memory, or write the file by hand"
        )
    return Proposal(
        devices=tuple(device.path for device in devices),
        index=index,
        device_bytes=device_bytes,
        slab_bytes=slab_bytes,
        index_bytes=min(INDEX_BYTES_MOST, _rounded(int(FREE_SHARE * index_free_bytes))),
        dram_bytes=memory_bytes,
        arenas_bytes=memory_bytes,
    )


def _device_bytes(devices: Sequence[DevicePlace]) -> int:
    """What every device has room for; files on one file system share its free space."""
    new = Counter(one.file_system for one in devices if one.kind is PlaceKind.ABSENT)
    sizes = []
    for device in devices:
        if device.kind is PlaceKind.OTHER:
            raise ProposalError(f"{device.path} is neither a file nor a block device; name another")
        if device.kind is PlaceKind.ABSENT and device.free_bytes is None:
            raise ProposalError(
                f"there is no folder {device.path.parent} for {device.path}; make it first"
            )
        if device.kind is PlaceKind.ABSENT:
            sizes.append(int(FREE_SHARE * (device.free_bytes or 0) / new[device.file_system]))
        else:
            sizes.append(device.size_bytes)
    smallest = _rounded(min(sizes))
    if smallest < DEVICE_BYTES_LEAST:
        raise ProposalError(
            f"{devices[sizes.index(min(sizes))].path} has room for {min(sizes) / _MIB:.0f} MiB, "
            f"and a device needs {DEVICE_BYTES_LEAST / _MIB:.0f}; free space, or name another place"
        )
    return smallest


def _rounded(byte_count: int) -> int:
    """Down to whole GiB, or MiB where there is no whole one."""
    unit = _GIB if byte_count >= _GIB else _MIB
    return byte_count // unit * unit


def text_of(proposal: Proposal, *, sockets: Path) -> str:
    """The configuration file; sockets lie in the folder ``sockets``."""
    devices = ", ".join(map(_quoted, proposal.devices))
    return f"""\
# Configuration of kvstored, made by "kvstored init" for this machine. docs/install.md explains
# every key. Relative paths are relative to this file's folder.

[store]
# One file or block device for each NVMe drive. Never change their order after the format.
devices = [{devices}]
# Size of each: "kvstored format" reserves it, and it never grows.
device_bytes = "{_size(proposal.device_bytes)}"
# A chunk must fit into one: a little more than a multiple of your largest chunk.
slab_bytes = "{_size(proposal.slab_bytes)}"
index = {_quoted(proposal.index)}
# Address space of the index, and so its largest size.
index_map_bytes = "{_size(proposal.index_bytes)}"

[dram]
# Reserved when the daemon starts; it must leave the engine what that needs.
capacity_bytes = "{_size(proposal.dram_bytes)}"

[server]
socket = {_quoted(sockets / "kvstored.sock")}
grpc_socket = {_quoted(sockets / "grpc.sock")}
# Memory of one client, and of all clients together.
arena_bytes_max = "{_size(min(ARENA_BYTES_MOST, proposal.arenas_bytes))}"
arenas_bytes_max = "{_size(proposal.arenas_bytes)}"

# Who may connect besides root and the daemon's own user: without an entry nobody.
# [[access.tenants]]
# namespace = "default"
# groups = ["kvstored"]
# huge_pages = true
"""


def _quoted(path: Path) -> str:
    """A path as TOML writes it."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _size(byte_count: int) -> str:
    unit, name = (_GIB, "GiB") if byte_count % _GIB == 0 else (_MIB, "MiB")
    return f"{byte_count // unit}{name}"
